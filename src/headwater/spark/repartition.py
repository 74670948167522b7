"""Change the number of state partitions with Spark's offline repartitioning, inside a change that can be undone."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.locate import subtree
from headwater.checkpoint.record import sink_of
from headwater.core.errors import ChangeRefused
from headwater.spark.failures import condition_of, root_cause
from headwater.spark.internals.offline_repartition import repartition_state
from headwater.spark.session import matching_checkpoint_format
from headwater.timemachine.change import SCRATCH
from headwater.timemachine.cuts import has_sink_log
from headwater.timemachine.executor import apply_change, refuse_if_pending
from headwater.timemachine.fork import plan_adoption, plan_fork
from headwater.timemachine.journal import Entry


def check_repartition(files: FileTree, partitions: int) -> int:
    """Return the current number of partitions, or refuse what Spark cannot repartition."""
    refuse_if_pending(files)
    history = History(files)
    last = history.last_committed
    if last is None or not history.logs.state.stores:
        raise ChangeRefused(
            "no-state", "this checkpoint has no state to repartition", evidence={"checkpoint": files.location}
        )
    if history.batch_ids[-1] > last:
        raise ChangeRefused(
            "uncommitted-batch",
            f"batch {history.batch_ids[-1]} is planned but not committed",
            evidence={"checkpoint": files.location},
            remedy="run the job until it has finished the batch"
            + (f", or headwater rewind {files.location} --to {last - 1} --replan" if last else ""),
        )
    entry = history.logs.offsets.get(last)
    provider = (entry.conf if entry else {}).get("spark.sql.streaming.stateStore.providerClass", "")
    if "RocksDB" not in provider:
        raise ChangeRefused(
            "state-store",
            "Spark can repartition RocksDB state only",
            evidence={"state store": provider.rpartition(".")[2] or "HDFSBackedStateStoreProvider"},
            remedy="restart the stream from scratch on RocksDB, Headwater's default",
        )
    now = (entry.shuffle_partitions if entry else None) or 0
    if now == partitions:
        raise ChangeRefused("nothing-to-do", f"the state already has {partitions} partitions")
    return now


def repartition(spark: SparkSession, files: FileTree, partitions: int) -> Entry:
    """Repartition a scratch fork inside the checkpoint, then adopt the result in one change."""
    before = check_repartition(files, partitions)
    last, sink = History(files).last_committed, sink_of(files)
    sink = sink if sink is not None and has_sink_log(sink) else None
    scratch = f"{SCRATCH}/repartition"
    forked = subtree(files, scratch)
    with hold_lease(files, "headwater repartition", "cannot repartition"):
        files.remove_folder(scratch)
        plan_fork(files, forked, at=last).apply()
        with matching_checkpoint_format(spark, files):
            _repartition_in_place(spark, forked, partitions)
    try:
        about = f"change the state partitions from {before} to {partitions}"
        change = plan_adoption(files, scratch, forked, sink, verb="repartition", about=about)
        return apply_change(change, files, sink)
    finally:
        files.remove_folder(scratch)


def _repartition_in_place(spark: SparkSession, checkpoint: FileTree, partitions: int) -> None:
    try:
        repartition_state(spark, checkpoint.spark_uri(), partitions)
    except (PySparkException, Py4JError) as error:
        raise ChangeRefused(
            "spark-refuses",
            "Spark could not repartition the state",
            evidence={condition_of(error) or "reason": root_cause(error)},
        ) from error
