"""Moved checkpoints on real Spark: the stream continues at the new place and reads no file twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.move_plan import plan_move
from s3_support import S3
from timemachine.spark_runs import STORES, Inbox, Stream
from timemachine.stream_pairs import EVENT, QUERIES, events
from timemachine.test_move import errors_in

FEEDS = 5


class SinkStream:
    """A stream from a folder to a file sink, in append mode."""

    def __init__(self, spark: SparkSession, home: Path, operator: str, store: str) -> None:
        self._spark, self._operator, self._store = spark, operator, store
        self.inbox = Inbox(home / "in put", EVENT)
        self.use(home, home / "in put")

    def use(self, home: Path, inbox: Path) -> None:
        """Continue with the checkpoint and the sink in a folder, and with the input in another one."""
        self.inbox.folder = inbox
        query = QUERIES[self._operator][0]
        self.stream = Stream(
            self._spark, home / "checkpoint", query, {"events": self.inbox}, mode="append", conf=STORES[self._store]
        )
        self.sink = home / "out put"

    def feed(self, upto: int) -> None:
        for number in range(self.inbox.count, upto):
            self.inbox.put(events(number, 0, timedelta(minutes=8)))

    def run(self) -> None:
        self.stream.run_into(lambda writer: writer.format("json").start(str(self.sink)))

    @property
    def rows(self) -> list[str]:
        """The rows of the sink, as a reader of its log sees them."""
        read = self._spark.read.json(str(self.sink))
        return sorted(json.dumps(row.asDict(recursive=True), default=str, sort_keys=True) for row in read.collect())


def move_and_continue(spark: SparkSession, folder: Path, operator: str, store: str) -> None:
    """Check that a stream that is moved after some feeds writes what one that stays writes."""
    moved = SinkStream(spark, folder / "disk 1", operator, store)
    control = SinkStream(spark, folder / "control", operator, store)
    for stream in (moved, control):
        stream.feed(FEEDS)
        stream.run()
    old, new = folder / "disk 1", folder / "disk 2"
    plan = plan_move(
        LocalTree(old / "checkpoint"),
        str(new / "checkpoint"),
        folders=[f"{old / 'in put'}={new / 'inbox'}", f"{old / 'out put'}={new / 'out put'}"],
    )
    plan.apply()
    with pytest.raises(Py4JJavaError, match="headwater_moved_this_checkpoint"):
        moved.run()
    for name in ("in put", "out put"):
        shutil.rmtree(old / name)
    moved.use(new, new / "inbox")
    assert errors_in(new / "checkpoint", new / "out put") == []
    for stream in (moved, control):
        stream.feed(FEEDS + 3)
        stream.run()
    assert moved.rows == control.rows
    assert moved.rows
    last = History(control.stream.files).last_committed
    assert History(moved.stream.files).last_committed == last
    assert moved.stream.state(last or 0) == control.stream.state(last or 0)


def test_a_moved_stream_continues(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A stream that moves with its input and its file sink writes each row once, like one that stays."""
    move_and_continue(headwater_spark, tmp_path, "aggregation", "format2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "store"), [("aggregation", "hdfs"), ("dedup", "rocksdb"), ("session", "changelog")]
)
def test_other_moved_streams_continue(headwater_spark: SparkSession, tmp_path: Path, operator: str, store: str) -> None:
    """The same for other stores, for deduplication and for sessions."""
    move_and_continue(headwater_spark, tmp_path, operator, store)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["changelog", "format2"])
def test_custom_state_moves(stream_pair, tmp_path: Path, store: str) -> None:
    """Custom state, whose metadata names schema files by absolute paths, continues at the new place."""
    pair = stream_pair("timers", store)
    pair.feed(pair.inboxes, FEEDS)
    pair.feed(pair.control_inboxes, FEEDS)
    assert pair.changed.run() == pair.control.run()
    old, new = pair.changed.checkpoint, tmp_path / "new place"
    inbox = pair.inboxes["events"]
    plan_move(pair.changed.files, str(new), folders=[f"{inbox.folder}={tmp_path / 'inbox'}"]).apply()
    shutil.rmtree(old)
    pair.changed.checkpoint, inbox.folder = new, tmp_path / "inbox"
    for inboxes in (pair.inboxes, pair.control_inboxes):
        pair.feed(inboxes, FEEDS + 2)
    assert pair.changed.run() == pair.control.run()
    assert pair.changed.states() == pair.control.states()


@pytest.mark.slow
def test_a_stream_moves_to_s3_and_back(s3: S3) -> None:
    """A stream that runs on a disk, then on S3, then on the disk again ends like one that never moved."""
    script = Path(__file__).with_name("s3_move.py")
    done = subprocess.run(
        [sys.executable, script, s3.endpoint], capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["moved"] == seen["control"], seen
    assert seen["rows on s3"] > seen["rows before"] > 0
    assert seen["kept"] == {"name": "on-s3", "batch": seen["batch on s3"]}
    assert seen["restored"] == seen["batch on s3"]
    assert seen["rerun"] == seen["control"]
