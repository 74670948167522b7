"""How a checkpoint identifies the sources of a query: by their order in the plan or, if asked for, by their names.

Spark 4.2 can name sources (``spark.sql.streaming.queryEvolution.enableSourceEvolution``). Offsets then have names, and the
order of the sources in the code may change. Without names, a changed order would give each source the offsets of another.

Names are not the default, because the offset log that they need (version 2) lacks the number of shuffle partitions. In
Spark 4.2.0, a restart with another number then reads the wrong state without an error, and a query that was killed
during a batch does not restart at all: a check for interrupted repartitions fails on the missing number. Here the number
is set from the state, and the check is turned off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamReader

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import OFFSETS
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import JobRefused
from headwater.jobs.job import Job
from headwater.spark.dropped.lateness import source_order
from headwater.spark.internals.plans import analyzed
from headwater.spark.join_checks import stream_joins
from headwater.spark.prepared import PreparedJob
from headwater.spark.reading import NAMING, read_inputs
from headwater.spark.session import temporary_settings

OFFSET_LOG_VERSION = "spark.sql.streaming.offsetLog.formatVersion"
PARTITIONS = "spark.sql.shuffle.partitions"
REPARTITION_CHECK = "spark.sql.streaming.checkUnfinishedRepartitionOnRestart"
OFF = {NAMING: "false"}
ON = {NAMING: "true", OFFSET_LOG_VERSION: "2"}


def naming_settings(spark: SparkSession, job: Job, files: FileTree) -> dict[str, str]:
    """Return the settings with which a job has to be read and started on a checkpoint.

    A checkpoint keeps what it started with. In a new one, the sources are named if the session asks for it.
    """
    logs = CheckpointLogs(files)
    last = logs.offsets.get(logs.offsets.ids[-1]) if logs.offsets.ids else None
    if last is not None and last.version == 1:
        return OFF
    if last is not None:
        named = last.conf.get(NAMING) == "true"
        names = ON if named else {**OFF, OFFSET_LOG_VERSION: "2"}
        return {**names, REPARTITION_CHECK: "false", **_partitions(logs)}
    if spark.conf.get(NAMING, "false") != "true":
        return OFF
    obstacle = _obstacle(spark, job)
    if obstacle:
        raise JobRefused(
            "source-names",
            f"Spark cannot name the sources of {job.name}",
            evidence={"reason": obstacle},
            remedy=f"omit --conf {NAMING}=true",
        )
    return ON


def _obstacle(spark: SparkSession, job: Job) -> str | None:
    if not all(job.sources):
        return "the job does not name its source: reads={'name': …}"
    if not hasattr(DataStreamReader, "name"):
        return "this version of PySpark does not support it; 4.2 does"
    with temporary_settings(spark, OFF):
        order = source_order(job, read_inputs(spark, job))
    twice = next((name for name in order if order.count(name) > 1), None)
    return f"the job uses {twice} twice, and Spark requires each name to occur once" if twice else None


def _partitions(logs: CheckpointLogs) -> dict[str, str]:
    """Return the setting for the number of partitions that the state has."""
    batch = logs.commits.latest or 0
    operators = (logs.operator(number, batch) for number in logs.operators(batch))
    counts = {store.partitions for operator in operators if operator for store in operator.stores}
    return {PARTITIONS: str(max(counts))} if counts else {}


def has_join(prepared: PreparedJob) -> bool:
    """Return whether a job joins streams. A join keeps the rows of each side in stores of their own."""
    return any(stream_joins(analyzed(prepared.frame)))


def check_source_order(
    files: FileTree, recorded: JobRecord, order: Sequence[str], prepared: PreparedJob, settings: Mapping[str, str]
) -> None:
    """Refuse a job whose plan has its sources in another order than the offsets or the state in the checkpoint."""
    before = list(recorded.source_order)
    if not before or not files.entries(OFFSETS) or before == list(order):
        return
    joins = has_join(prepared)  # names do not identify its sides
    if settings.get(NAMING) == "true" and not joins:
        return
    raise JobRefused(
        "source-order",
        "the order of the sources has changed since this checkpoint was created",
        evidence={
            "recorded": ", ".join(before),
            "now": ", ".join(order),
            "why": "Spark finds the offsets of a source, and the state of a join's side, by its place in the plan",
        },
        remedy="restore the order, for example by exchanging the sides of the join, or use a new --checkpoint"
        if joins
        else f"restore the order, or: headwater migrate {files.location} --job JOB",
    )
