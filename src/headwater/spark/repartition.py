"""Change the number of state partitions with Spark's offline repartitioning, inside a change that can be undone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.record import sink_of
from headwater.core.errors import ChangeRefused, SetupProblem
from headwater.spark.failures import condition_of, root_cause
from headwater.spark.internals import offline_repartition
from headwater.spark.session import jars_for_location, matching_checkpoint_format, own_or_active_session
from headwater.timemachine.change import SCRATCH, fingerprint
from headwater.timemachine.cuts import has_sink_log
from headwater.timemachine.executor import apply_change
from headwater.timemachine.fork import plan_adoption, plan_fork
from headwater.timemachine.journal import Entry
from headwater.timemachine.repartition import plan_repartition


def repartition_with_spark(files: FileTree, partitions: int, *, conf: Mapping[str, str] | None = None) -> Entry:
    """Repartition with the Spark session of this process, or with one that is started for it."""
    jars = jars_for_location(files.location)
    log = Path(".headwater/logs/repartition.log")
    with own_or_active_session("headwater repartition", conf=conf, jars=jars, log=log) as spark:
        return repartition(spark, files, partitions)


def repartition(spark: SparkSession, files: FileTree, partitions: int) -> Entry:
    """Repartition a scratch fork inside the checkpoint, then adopt the result in one change."""
    if not offline_repartition.probe(spark):
        raise SetupProblem(
            "pyspark-version",
            "this version of PySpark cannot repartition state; 4.2 can",
            evidence={"installed": spark.version},
            remedy="pip install 'pyspark>=4.2,<4.4'",
        )
    sink = sink_of(files)
    sink = sink if sink is not None and has_sink_log(sink) else None
    seen = fingerprint(files, sink)
    plan = plan_repartition(files, partitions)
    last = History(files).last_committed
    scratch = f"{SCRATCH}/repartition"
    forked = files.subtree(scratch)
    with hold_lease(files, "headwater repartition", "cannot repartition"):
        files.remove_folder(scratch)
        plan_fork(files, forked, at=last).apply()
        with matching_checkpoint_format(spark, files):
            _repartition_in_place(spark, forked, partitions)
    about = f"change the state partitions from {plan.before} to {partitions}"
    change = plan_adoption(files, scratch, forked, sink, verb="repartition", about=about, seen=seen)
    entry = apply_change(change, files, sink)
    files.remove_folder(scratch)  # only now: a change that failed halfway needs these files to be resumed
    return entry


def _repartition_in_place(spark: SparkSession, checkpoint: FileTree, partitions: int) -> None:
    try:
        offline_repartition.repartition_state(spark, checkpoint.spark_uri(), partitions)
    except (PySparkException, Py4JError) as error:
        raise ChangeRefused(
            "spark-refuses",
            "Spark could not repartition the state",
            evidence={condition_of(error) or "reason": root_cause(error)},
        ) from error
