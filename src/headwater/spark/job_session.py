"""What a job needs of a session: a log file, and its own settings while it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.jobs.job import Job
from headwater.spark.failures import SPARK_ERRORS
from headwater.spark.session import temporary_settings


def log_file(jobs: Sequence[Job]) -> Path:
    """Return the file that Spark's log is written to while these jobs run."""
    # No job has a plus sign in its name.
    return Path(".headwater/logs") / f"{'+'.join(job.name for job in jobs)[:200]}.log"


@contextmanager
def settings_of_job(spark: SparkSession, job: Job, warn: Callable[[str], None]) -> Iterator[bool]:
    """Give a session the job's settings while the block runs; yield whether that changes any.

    Several jobs may share a session. A query keeps the settings that the session had when it started. ``warn`` receives
    the settings that a running session cannot take.
    """
    wanted = {name: value for name, value in job.conf.items() if spark.conf.get(name, None) != value}
    fixed = [name for name in wanted if not _accepts(spark, name, wanted[name])]
    if fixed:
        listed = ", ".join(f"{name}={wanted[name]}" for name in fixed)
        warn(f"warning: {job.name}: Spark is already running, and cannot take these settings of the job: {listed}")
    changed = {name: value for name, value in wanted.items() if name not in fixed}
    with temporary_settings(spark, changed):
        yield bool(changed)


def _accepts(spark: SparkSession, name: str, value: str) -> bool:
    try:
        with temporary_settings(spark, {name: value}):
            return True
    except SPARK_ERRORS:
        return False


def isolated_session(spark: SparkSession) -> SparkSession:
    """Return a new session on the same Spark with the present settings, which later changes do not reach."""
    copy = spark.newSession()
    for name, value in spark.conf.getAll.items():
        with suppress(*SPARK_ERRORS):  # settings of the process, which all sessions share
            copy.conf.set(name, value)
    return copy
