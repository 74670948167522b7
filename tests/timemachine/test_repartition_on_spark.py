"""Another number of state partitions on real Spark: what comes after is what comes without it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from corpus_support import CorpusCheckpoint
from headwater import Files, Job
from headwater.checkpoint import filetree as trees
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.core.errors import ChangeRefused
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.ownership import Run
from headwater.spark.repartition import check_repartition, repartition
from headwater.spark.runner import run_job
from headwater.statefiles.reader import state_rows
from headwater.timemachine.undo import plan_undo
from timemachine.spark_runs import EAGER, NO_EMPTY_BATCHES, STORES, Inbox, Stream, settings
from timemachine.test_rewind_and_undo import bytes_of
from timemachine.twins import FEEDS, MORE, QUERIES

PARTITIONS = 3


def held(stream: Stream) -> Counter[str]:
    """The state after the last batch, whichever partition each row is in."""
    last = History(stream.files).last_committed
    assert last is not None
    rows = ({**row, "partition_id": None} for row in state_rows(stream.files, last))
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)


def repartition_and_go_on(twins) -> None:
    stream, calm = twins.disturbed, twins.calm
    for inboxes, one in ((twins.inboxes, stream), (twins.calm_inboxes, calm)):
        twins.feed(inboxes, FEEDS)
        one.run(**NO_EMPTY_BATCHES)  # the watermark has moved, and no batch has run with it yet
    before, state = bytes_of(stream.checkpoint), held(stream)

    repartition(stream.spark, stream.files, PARTITIONS)
    plan_undo(stream.files).apply()
    assert bytes_of(stream.checkpoint) == before
    repartition(stream.spark, stream.files, PARTITIONS)
    unload_state_stores(stream.spark)
    _check(stream.files)
    assert held(stream) == state
    twins.feed(twins.calm_inboxes, FEEDS + MORE)
    expected = list(calm.run().values())
    _go_on(twins, expected)
    assert held(stream) == held(calm)
    last = History(stream.files).last_committed
    partitions = {row["partition_id"] for row in state_rows(stream.files, last)}
    assert max(partitions) >= 2, "the state did not spread over more partitions than before"

    plan_undo(stream.files, drop_newer=True).apply()
    assert held(stream) == state
    _check(stream.files)
    _go_on(twins, expected)
    assert held(stream) == held(calm)


def _go_on(twins, expected: list[list[str]]) -> None:
    twins.feed(twins.inboxes, FEEDS + MORE)
    assert list(twins.disturbed.run().values()) == expected


def _check(files: LocalTree, sink: trees.Files | None = None) -> None:
    assert not [finding for finding in run_checks(Scene(files, 0, sink)) if finding.severity == "error"]


@pytest.mark.parametrize(
    ("operator", "store"),
    [("join", "changelog"), ("timers", "format2")],
)
def test_a_repartitioned_stream_goes_on(twins, operator: str, store: str) -> None:
    repartition_and_go_on(twins(operator, store))


@pytest.mark.slow
@pytest.mark.parametrize("store", [name for name in STORES if name != "hdfs"])
@pytest.mark.parametrize("operator", QUERIES)
def test_all_operators_on_all_stores_that_spark_repartitions(twins, operator: str, store: str) -> None:
    repartition_and_go_on(twins(operator, store))


def once(rows: DataFrame) -> DataFrame:
    """Each word when it comes for the first time."""
    return rows.dropDuplicates(["word"])


@pytest.mark.parametrize("interval", [3, 10])
def test_a_stream_into_files_goes_on(headwater_spark: SparkSession, tmp_path: Path, interval: int) -> None:
    """Spark wants every batch in the sink's log when it compacts it, and a repartition is a batch without output."""
    spark, out = headwater_spark, tmp_path / "out"
    inbox = Inbox(tmp_path / "in", "word STRING")
    reads = Files(str(inbox.folder), format="json", schema=inbox.schema, options={"maxFilesPerTrigger": "1"})
    job = Job("words", once, reads=reads, writes=Files(str(out), format="json"), mode="append", trigger="available-now")
    files = LocalTree(tmp_path / "checkpoint")

    def go_on(count: int) -> None:
        for _ in range(count):
            inbox.put([{"word": f"word {inbox.count:02}"}, {"word": "again"}])
        with settings(spark, {**EAGER, "spark.sql.streaming.fileSink.log.compactInterval": str(interval)}):
            run_job(spark, Run(job, "test", str(files.root)), stop=threading.Event())
        unload_state_stores(spark)
        found = sorted(row.word for row in spark.read.schema(inbox.schema).json(str(out)).collect())
        assert found == ["again", *(f"word {number:02}" for number in range(inbox.count))]

    go_on(2)
    for partitions in (3, 1, 2):  # the batches 2 (just where a log of interval 3 is compacted), 4 and 7 to begin with
        repartition(spark, files, partitions)
        unload_state_stores(spark)
        _check(files, open_files(str(out)))
        go_on(partitions)
    before = bytes_of(out)
    repartition(spark, files, 4)
    plan_undo(files, sink=open_files(str(out))).apply()
    assert bytes_of(out) == before
    go_on(12)
    _check(files, open_files(str(out)))


@pytest.mark.parametrize(
    ("name", "partitions", "code"),
    [
        ("aggregation-hdfs", 3, "state-store"),
        ("kafka-stateless", 3, "no-state"),
        ("crashed-after-changelog", 3, "uncommitted-batch"),
        ("aggregation-changelog", 2, "nothing-to-do"),
    ],
)
def test_refusals(corpus: Callable[[str], CorpusCheckpoint], name: str, partitions: int, code: str) -> None:
    """What Spark's facility cannot do is said before it is started."""
    path: Path = corpus(name).path
    with pytest.raises(ChangeRefused) as refused:
        check_repartition(LocalTree(path), partitions)
    assert refused.value.code == code
