"""Jobs in a Python program: ``Job.start`` on the program's session, or on a new one with Headwater's settings.

Warnings about the session go to ``warnings``: they ask for a change to the program. Warnings about the run, such as
dead letters that cannot be saved, go to the logger ``headwater``.
"""

from __future__ import annotations

import logging
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from headwater.core.errors import JobRefused, disk_error
from headwater.jobs.job import Job
from headwater.jobs.loading import gallery_names, jobs_in, load_job
from headwater.spark.internals.gateway import is_stopped
from headwater.spark.job_session import log_file
from headwater.spark.ownership import Run, check_run, checkpoint_location
from headwater.spark.preflight import check_services
from headwater.spark.real_time import session_for
from headwater.spark.runner import start_job
from headwater.spark.running import RunningJob
from headwater.spark.session import (
    DEFAULT_MASTER,
    active_session,
    add_jars,
    default_conf,
    is_own,
    jars_for,
    start_session,
)
from headwater.timemachine.keeping import KeepPolicy

LOGGER = logging.getLogger("headwater")
# Defaults of Headwater's sessions that change a query's results, its state or its speed.
ADVISED = (
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
)
# The frames between warnings.warn and the program: _advise, _session, start_in_program, Job.start.
PROGRAM = 5
CONNECT = "pyspark.sql.connect."


def start_in_program(
    job: Job,
    spark: SparkSession | None,
    checkpoint: str | Path | None,
    trigger: str | None,
    *,
    accept_change: bool = False,
    keep: tuple[str | None, str | None] = (None, None),
) -> RunningJob:
    """Check a job as ``headwater run`` does, and start it. See ``Job.start``; ``keep`` are its last two options."""
    policy = KeepPolicy.parse(*keep)
    job = replace(job, trigger=trigger or job.trigger)
    _refuse_session(job, spark)
    spark = spark or active_session()
    master = job.conf.get("spark.master", DEFAULT_MASTER) if spark is None else DEFAULT_MASTER
    location = checkpoint_location(None if checkpoint is None else str(checkpoint), job)
    run = Run(job, reference_of(job), location, accept_change)
    try:
        check_run(run)
        check_services(job, master, warn=LOGGER.warning)
        return start_job(_session(run, spark, master), run, warn=LOGGER.warning, keep=policy)
    except OSError as error:
        if (explained := disk_error(error)) is None:
            raise
        raise explained from error


def _session(run: Run, spark: SparkSession | None, master: str) -> SparkSession:
    """Return the session of the program, or a new one."""
    job, jars = run.job, jars_for(run.job, run.checkpoint)
    if spark is None:
        master, conf = session_for([run], master, job.conf)
        return start_session(job.name, master=master, conf=conf, jars=jars, log=log_file([job]))
    if is_own(spark):
        add_jars(spark, jars)  # the job that started this session may have needed fewer
    else:
        _advise(spark)
    return spark


def _refuse_session(job: Job, spark: SparkSession | None) -> None:
    """Refuse a session on which no job can run."""
    is_connect = spark is not None and any(kind.__module__.startswith(CONNECT) for kind in type(spark).__mro__)
    if is_connect or (spark is None and is_remote()):
        raise JobRefused(
            "spark-connect",
            f"cannot start {job.name} on a Spark Connect session",
            evidence={
                "missing": "access to the driver's JVM, which holds the checkpoint's lease, checks the plan, and ends a "
                "query between two batches"
            },
            remedy="start it where Spark's driver runs: SparkSession.builder.master(...) instead of .remote(...)",
        )
    if spark is not None and is_stopped(spark):
        raise JobRefused(
            "spark-stopped",
            f"cannot start {job.name} on a Spark session that was stopped",
            remedy="create another session, or call start() without one",
        )


_advised: WeakSet[SparkContext] = WeakSet()


def _advise(spark: SparkSession) -> None:
    """Warn, once for each Spark process, of settings that a session leaves at Spark's defaults."""
    if spark.sparkContext in _advised:
        return
    _advised.add(spark.sparkContext)
    ours = default_conf(spark.sparkContext.master)
    missing = [f"{name}={ours[name]}" for name in ADVISED if spark.conf.get(name, None) is None]
    if missing:
        text = "this Spark session lacks settings that Headwater gives its own: "
        warnings.warn(text + ", ".join(missing), stacklevel=PROGRAM)


def reference_of(job: Job) -> str | None:
    """Return the name under which later commands can load a job; None for one that only this program knows.

    A script is not named: loading it would run it again.
    """
    if job.name in gallery_names() and load_job(job.name).transform is job.transform:
        return job.name
    module = sys.modules.get(getattr(job.transform, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return None
    names = [
        name for name, other in jobs_in(module).items() if (other.name, other.transform) == (job.name, job.transform)
    ]
    if not names:
        return None
    place = str(module.__file__) if module.__name__.startswith("job_file_") else module.__name__
    return f"{place}:{names[0]}"
