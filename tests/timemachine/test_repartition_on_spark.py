"""Repartitioning on real Spark: a repartitioned stream emits the same rows as a control."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from corpus_support import CorpusCheckpoint
from headwater import Checkpoint, Files, Job
from headwater.checkpoint import filetree as trees
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.core.errors import ChangeRefused
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.ownership import Run
from headwater.spark.repartition import repartition
from headwater.spark.runner import run_job
from headwater.statefiles.reader import state_rows
from headwater.timemachine.repartition import plan_repartition
from headwater.timemachine.undo import plan_undo
from timemachine.spark_runs import EAGER, NO_EMPTY_BATCHES, STORES, Inbox, Stream, settings
from timemachine.stream_pairs import FEW, MORE, QUERIES
from timemachine.test_rewind_and_undo import bytes_of

PARTITIONS = 3


def held(stream: Stream) -> Counter[str]:
    """Return the state after the last batch, without the partition of each row."""
    last = History(stream.files).last_committed
    assert last is not None
    rows = ({**row, "partition_id": None} for row in state_rows(stream.files, last))
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)


def repartition_and_continue(pair) -> None:
    """Repartition, undo, repartition again; check each time that the stream continues like the control."""
    stream, control = pair.changed, pair.control
    for inboxes, one in ((pair.inboxes, stream), (pair.control_inboxes, control)):
        pair.feed(inboxes, pair.feeds)
        one.run(**NO_EMPTY_BATCHES)  # the watermark has advanced, and no batch has used it yet
    before, state = bytes_of(stream.checkpoint), held(stream)

    repartition(stream.spark, stream.files, PARTITIONS)
    unload_state_stores(stream.spark)
    plan_undo(stream.files).apply()
    assert bytes_of(stream.checkpoint) == before
    repartition(stream.spark, stream.files, PARTITIONS)
    unload_state_stores(stream.spark)
    _check(stream.files)
    assert held(stream) == state
    pair.feed(pair.control_inboxes, pair.feeds + MORE)
    expected = list(control.run().values())
    _continue(pair, expected)
    assert held(stream) == held(control)
    last = History(stream.files).last_committed
    partitions = {row["partition_id"] for row in state_rows(stream.files, last)}
    assert max(partitions) >= 2, "the state did not spread over more partitions than before"

    plan_undo(stream.files, drop_newer=True).apply()
    assert held(stream) == state
    _check(stream.files)
    _continue(pair, expected)
    assert held(stream) == held(control)


def _continue(pair, expected: list[list[str]]) -> None:
    pair.feed(pair.inboxes, pair.feeds + MORE)
    assert list(pair.changed.run().values()) == expected


def _check(files: LocalTree, sink: trees.Files | None = None) -> None:
    assert not [finding for finding in run_checks(CheckContext(files, 0, sink)) if finding.severity == "error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "store"),
    [("join", "changelog")],
)
def test_a_repartitioned_stream_continues(stream_pair, operator: str, store: str) -> None:
    """After a repartition the stream emits the same rows and has the same state as a control."""
    repartition_and_continue(stream_pair(operator, store, FEW))


@pytest.mark.slow
@pytest.mark.parametrize("store", [name for name in STORES if name != "hdfs"])
@pytest.mark.parametrize("operator", QUERIES)
def test_all_operators_on_all_stores_that_spark_repartitions(stream_pair, operator: str, store: str) -> None:
    """Every operator on every store that Spark can repartition continues as its control does."""
    repartition_and_continue(stream_pair(operator, store))


def once(rows: DataFrame) -> DataFrame:
    """Return each word once."""
    return rows.dropDuplicates(["word"])


@pytest.mark.parametrize("interval", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_stream_with_a_file_sink_continues(headwater_spark: SparkSession, tmp_path: Path, interval: int) -> None:
    """A repartition is a batch without output, and gets the entry that Spark expects when it compacts the sink's log."""
    spark, out = headwater_spark, tmp_path / "out"
    inbox = Inbox(tmp_path / "in", "word STRING")
    reads = Files(str(inbox.folder), format="json", schema=inbox.schema, options={"maxFilesPerTrigger": "1"})
    job = Job("words", once, reads=reads, writes=Files(str(out), format="json"), mode="append", trigger="available-now")
    files = LocalTree(tmp_path / "checkpoint")

    def run_more(count: int) -> None:
        for _ in range(count):
            inbox.put([{"word": f"word {inbox.count:02}"}, {"word": "again"}])
        with settings(spark, {**EAGER, "spark.sql.streaming.fileSink.log.compactInterval": str(interval)}):
            run_job(spark, Run(job, "test", str(files.root)), stop=threading.Event())
        unload_state_stores(spark)
        found = sorted(row.word for row in spark.read.schema(inbox.schema).json(str(out)).collect())
        assert found == ["again", *(f"word {number:02}" for number in range(inbox.count))]

    run_more(2)
    for partitions in (3, 1, 2):  # as batches 2 (at which a log of interval 3 is compacted), 4 and 7
        repartition(spark, files, partitions)
        unload_state_stores(spark)
        _check(files, open_files(str(out)))
        run_more(partitions)
    before = bytes_of(out)
    checkpoint = Checkpoint(files.root)
    done = checkpoint.repartition(4).apply()  # with the session of this process, which stays
    assert (done.change.verb, done.change.details["added"]) == ("repartition", [checkpoint.batches[-1].batch_id])
    checkpoint.undo().apply()
    assert bytes_of(out) == before
    run_more(12)
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
    """A repartition that Spark cannot do is refused before Spark is started."""
    path: Path = corpus(name).path
    with pytest.raises(ChangeRefused) as refused:
        plan_repartition(LocalTree(path), partitions)
    assert refused.value.code == code
