"""Forks on real Spark: they continue as the original would, next to it, and do not change it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import run_here
from headwater import Files, Job
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.local_tree import LocalTree
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from headwater.timemachine.fork import plan_fork
from timemachine.spark_runs import EAGER, NO_EMPTY_BATCHES, STORES, Inbox, Stream, settings
from timemachine.stream_pairs import FEW, MORE, QUERIES, TO
from timemachine.test_rewind_and_undo import bytes_of


def fork_and_continue(pair, folder: Path) -> None:
    """Check that a fork repeats the batches after ``TO``, and that both streams then emit the same rows."""
    original = pair.changed
    pair.feed(pair.inboxes, pair.feeds)
    rows, states = original.run(), original.states()
    before = bytes_of(original.checkpoint)

    into = LocalTree(folder / "fork")
    plan_fork(original.files, into, at=TO).apply()
    assert not [finding for finding in run_checks(CheckContext(into, 0)) if finding.severity == "error"]
    fork = Stream(original.spark, into.root, original.query, pair.inboxes, mode=original.mode, conf=original.conf)
    assert fork.run() == {batch: held for batch, held in rows.items() if batch > TO}
    assert fork.states() == states
    assert bytes_of(original.checkpoint) == before
    assert _query_id(fork.checkpoint) != _query_id(original.checkpoint)

    pair.feed(pair.inboxes, pair.feeds + MORE)
    assert original.run() == fork.run()
    assert fork.states() == original.states()


def _query_id(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


@pytest.mark.parametrize(
    ("operator", "store"),
    [("aggregation", "format2")],
)
def test_a_fork_continues_next_to_the_original(stream_pair, tmp_path: Path, operator: str, store: str) -> None:
    """A fork repeats the later batches of the original, and then emits the same rows for the same input."""
    fork_and_continue(stream_pair(operator, store, FEW), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("operator", QUERIES)
def test_forks_of_all_operators_on_all_stores(stream_pair, tmp_path: Path, operator: str, store: str) -> None:
    """The same for all operators on all stores, except for custom state on HDFS-backed ones, which Spark lacks."""
    if (operator, store) != ("timers", "hdfs"):
        fork_and_continue(stream_pair(operator, store), tmp_path)


def shout(rows: DataFrame) -> DataFrame:
    """Return the words in upper case."""
    return rows.select(F.upper("word").alias("word"))


@pytest.mark.parametrize("interval", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_fork_with_a_file_sink_of_its_own(headwater_spark: SparkSession, tmp_path: Path, interval: int) -> None:
    """Spark continues the new sink's log, wherever the original's was compacted, and writes only new rows to it."""
    spark, at, feeds = headwater_spark, 12, 14
    inbox = Inbox(tmp_path / "in", "word STRING")
    reads = Files(str(inbox.folder), format="json", schema=inbox.schema, options={"maxFilesPerTrigger": "1"})

    def run(checkpoint: Path, out: Path) -> None:
        job = Job("words", shout, reads=reads, writes=Files(str(out), format="json"), trigger="available-now")
        compaction = {"spark.sql.streaming.fileSink.log.compactInterval": str(interval)}
        with settings(spark, {**EAGER, **NO_EMPTY_BATCHES, **compaction}):
            run_job(spark, Run(job, "test", str(checkpoint)), stop=threading.Event())
        unload_state_stores(spark)

    def words(out: Path) -> list[str]:
        return sorted(row.word for row in spark.read.schema(inbox.schema).json(str(out)).collect())

    for number in range(feeds):
        inbox.put([{"word": f"word {number:02}"}])
    run(tmp_path / "original", tmp_path / "out")
    before = bytes_of(tmp_path / "out")

    fork = ("fork", tmp_path / "original", tmp_path / "fork", "--at", str(at), "--sink", f"files:{tmp_path / 'new'}")
    done = run_here(*fork)
    assert done.returncode == 0, done.stderr
    assert run_here(*fork).returncode != 0, "a second fork into the same folder is refused"
    run(tmp_path / "fork", tmp_path / "new")
    assert words(tmp_path / "new") == [f"WORD {number:02}" for number in range(at + 1, feeds)]
    assert bytes_of(tmp_path / "out") == before
    for number in range(feeds, feeds + 12):
        inbox.put([{"word": f"word {number:02}"}])
    run(tmp_path / "fork", tmp_path / "new")
    run(tmp_path / "original", tmp_path / "out")
    assert words(tmp_path / "new") == [f"WORD {number:02}" for number in range(at + 1, feeds + 12)]
    assert words(tmp_path / "out") == [f"WORD {number:02}" for number in range(feeds + 12)]
    assert run_here("fsck", tmp_path / "fork", "--sink", f"files:{tmp_path / 'new'}").returncode == 0
