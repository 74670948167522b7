"""Several jobs in one process: what they must not share, and how their settings are kept apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Files, Memory
from headwater.spark.failures import SPARK_ERRORS
from headwater.spark.ownership import Run
from headwater.spark.session import default_conf

# Settings outside this namespace belong to the process; Spark can change most of those within it for each query.
PER_QUERY = "spark.sql."


def refuse_shared(runs: Sequence[Run]) -> None:
    """Refuse runs of which two have the same name, checkpoint, memory table, output folder, or contradict in a setting."""
    _refuse_same(runs, "the name", lambda run: run.job.name, "give one of them another name")
    _refuse_same(runs, "the checkpoint", lambda run: run.checkpoint, "run one of them alone, with another --checkpoint")
    _refuse_same(runs, "the memory table", _memory_table, 'give each a table of its own: writes=Memory("NAME")')
    _refuse_same(runs, "the output folder", _output_folder, 'give each a folder of its own: writes=Files("DIR")')
    chosen: dict[str, Run] = {}
    for run in runs:
        for name, value in run.job.conf.items():
            other = chosen.setdefault(name, run)
            if not name.startswith(PER_QUERY) and other.job.conf[name] != value:
                raise JobRefused(
                    "jobs-collide",
                    f"{other.job.name} and {run.job.name} need different values of {name}, which one process cannot have",
                    evidence={other.job.name: other.job.conf[name], run.job.name: value},
                    remedy=f"set it for all of them: --conf {name}=VALUE; or run each in a process of its own",
                )


def _refuse_same(runs: Sequence[Run], what: str, thing: Callable[[Run], str | None], remedy: str) -> None:
    seen: dict[str, Run] = {}
    for run in runs:
        value = thing(run)
        if value is None:
            continue
        if value in seen:
            raise JobRefused(
                "jobs-collide",
                f"two of these jobs have {what} {value}",
                evidence={"jobs": ", ".join(str(one.reference) for one in (seen[value], run))},
                remedy=remedy,
            )
        seen[value] = run


def _memory_table(run: Run) -> str | None:
    return run.job.writes.name if isinstance(run.job.writes, Memory) else None


def _output_folder(run: Run) -> str | None:
    sink = run.job.writes
    if not isinstance(sink, Files):
        return None
    return sink.path if "://" in sink.path else str(Path(sink.path).absolute())


def session_conf(runs: Sequence[Run]) -> dict[str, str]:
    """Return the settings with which to start the session of several jobs. The first job that sets one decides."""
    conf: dict[str, str] = {}
    for run in runs:
        conf = {**run.job.conf, **conf}
    return conf


def keep_settings_apart(spark: SparkSession, runs: Sequence[Run], shared: Mapping[str, str]) -> None:
    """Take settings that belong to a single job back out of the session, where all jobs would have them.

    ``start_job`` gives each query its own. Those of the process, such as the driver's memory, remain.
    """
    defaults = default_conf(spark.sparkContext.master)
    for name in session_conf(runs):
        if name in shared:
            continue
        with suppress(*SPARK_ERRORS):
            spark.conf.set(name, defaults[name]) if name in defaults else spark.conf.unset(name)
