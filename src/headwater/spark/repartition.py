"""Another number of state partitions, through Spark's own offline facility, with our plan, journal and undo around it."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.lease import held_by_us
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import subtree
from headwater.checkpoint.record import sink_of
from headwater.core.errors import ChangeRefused
from headwater.spark.failures import condition_of, root_cause
from headwater.spark.internals.offline_repartition import repartition_state
from headwater.spark.session import in_its_format
from headwater.timemachine.change import SCRATCH
from headwater.timemachine.cuts import has_sink_log
from headwater.timemachine.executor import carry_out, refuse_if_pending
from headwater.timemachine.fork import carry_out_fork, plan_adoption, plan_fork
from headwater.timemachine.journal import Entry


def check_repartition(files: FileTree, partitions: int) -> int:
    """The number of partitions now; refused where Spark's facility could not do it."""
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
            f"batch {history.batch_ids[-1]} is planned and not committed",
            evidence={"checkpoint": files.location},
            remedy=f"let the job finish it, or headwater rewind {files.location} --to {last - 1} --replan",
        )
    entry = history.logs.offsets.get(last)
    provider = (entry.conf if entry else {}).get("spark.sql.streaming.stateStore.providerClass", "")
    if "RocksDB" not in provider:
        raise ChangeRefused(
            "state-store",
            "Spark can repartition RocksDB state only",
            evidence={"state store": provider.rpartition(".")[2] or "HDFSBackedStateStoreProvider"},
            remedy="start the stream anew on RocksDB, Headwater's default",
        )
    now = (entry.shuffle_partitions if entry else None) or 0
    if now == partitions:
        raise ChangeRefused("nothing-to-do", f"the state has {partitions} partitions already")
    return now


def repartition(spark: SparkSession, files: FileTree, partitions: int) -> Entry:
    """Work on a scratch fork inside the checkpoint, then take the result over in one change."""
    before = check_repartition(files, partitions)
    last, sink = History(files).last_committed, sink_of(files)
    sink = sink if sink is not None and has_sink_log(sink) else None
    scratch = f"{SCRATCH}/repartition"
    twin = subtree(files, scratch)
    with held_by_us(files, "headwater repartition", "cannot repartition"):
        files.remove_folder(scratch)
        carry_out_fork(plan_fork(files, twin, at=last), twin)
        with in_its_format(spark, files):
            _repartition_in_place(spark, twin, partitions)
    try:
        about = f"have {partitions} state partitions instead of {before}"
        change = plan_adoption(files, scratch, twin, sink, verb="repartition", about=about)
        return carry_out(change, files, sink)
    finally:
        files.remove_folder(scratch)


def _repartition_in_place(spark: SparkSession, checkpoint: FileTree, partitions: int) -> None:
    try:
        repartition_state(spark, _as_spark_names_it(checkpoint), partitions)
    except (PySparkException, Py4JError) as error:
        raise ChangeRefused(
            "spark-refuses",
            "Spark could not repartition the state",
            evidence={condition_of(error) or "Spark says": root_cause(error)},
        ) from error


def _as_spark_names_it(files: FileTree) -> str:
    if isinstance(files, LocalTree):
        return str(files.root.absolute())
    scheme, _, place = files.location.partition("://")
    return f"{'s3a' if scheme == 's3' else scheme}://{place}"
