"""Restore points on real Spark: a stream that is rewound to a batch that Spark has removed ends like an undisturbed one."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.checkpoint.history import History
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.restore_points import find_point, point_files, restore_points
from headwater.core.errors import HeadwaterError
from headwater.statefiles.reader import state_rows
from headwater.timemachine.keep import make_point
from headwater.timemachine.rewind_target import plan_rewind_to
from headwater.timemachine.tables import fsck
from headwater.timemachine.undo import plan_undo
from timemachine.spark_runs import STORES, Inbox, Stream
from timemachine.stream_pairs import MORE, QUERIES, StreamPair
from versions_support import SPARK

FORGETFUL = {"spark.sql.streaming.minBatchesToRetain": "2"}
CUSTOM_STATE = {"timers", "custom in pandas"}


def restore_twice(pair: StreamPair) -> None:
    """Keep a batch, run on until Spark has removed it, and rewind to it, with the same batches and with larger ones."""
    stream = pair.changed
    pair.feed(pair.inboxes, 2)
    rows = stream.run(**FORGETFUL)
    kept = max(rows)
    make_point(stream.files, "early")
    state = stream.state(kept)
    pair.feed(pair.inboxes, pair.feeds + MORE + 2)
    later = stream.run(**FORGETFUL)
    assert kept not in History(stream.files).batch_ids, "Spark still has the batch: this test would prove nothing"
    assert sorted(_rows_of_point(stream, "early")) == state

    plan = plan_rewind_to(stream.files, find_point(stream.files, "early"))
    assert plan.restored
    plan.apply()
    assert stream.state(kept) == state
    assert not [finding for finding in fsck(stream.files) if finding.severity == "error"]
    assert stream.run(**FORGETFUL) == later
    pair.feed(pair.control_inboxes, 2)
    control = pair.control.run()
    pair.feed(pair.control_inboxes, pair.feeds + MORE + 2)
    control |= pair.control.run()
    assert rows | later == control
    last = max(control)
    assert stream.state(last) == pair.control.state(last)

    plan_rewind_to(stream.files, find_point(stream.files, "early"), replan=True).apply()
    stream.run(files_per_batch=2, **FORGETFUL)
    plan_undo(stream.files, drop_newer=True).apply()
    assert stream.state(last) == pair.control.state(last)
    assert not [finding for finding in fsck(stream.files) if finding.severity == "error"]
    pair.feed(pair.inboxes, pair.feeds + MORE + 3)
    pair.feed(pair.control_inboxes, pair.feeds + MORE + 3)
    assert stream.run(**FORGETFUL) == pair.control.run()


def _rows_of_point(stream: Stream, name: str) -> list[str]:
    point = find_point(stream.files, name)
    assert point is not None
    rows = state_rows(point_files(stream.files, point), point.batch_id)
    return [json.dumps(row, default=str, sort_keys=True) for row in rows]


def test_a_stream_continues_from_a_point_whose_batch_spark_removed(stream_pair) -> None:
    """The re-run gives the rows and the state of an undisturbed stream; undo brings the later batches back."""
    restore_twice(stream_pair("aggregation", "format2", 1))


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("operator", QUERIES)
def test_points_of_all_operators_on_all_stores(stream_pair, operator: str, store: str) -> None:
    """The same for all operators on all stores, except for custom state on HDFS-backed ones, which Spark lacks."""
    if operator in CUSTOM_STATE and store == "hdfs":
        return
    if store == "format2" and SPARK < (4, 0):
        pytest.skip("PySpark 4.0 introduced checkpoint format 2")
    restore_twice(stream_pair(operator, store))


def test_a_file_sink_is_rewound_with_the_point(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """After the re-run every row is in the sink exactly once, although the sink's log was compacted since."""
    inbox, folder = Inbox(tmp_path / "in", "id INT"), tmp_path / "out"
    stream = Stream(
        headwater_spark,
        tmp_path / "checkpoint",
        lambda inputs: inputs["ids"],
        {"ids": inbox},
        mode="append",
        conf=FORGETFUL,
    )

    def run(numbers: range) -> None:
        for number in numbers:
            inbox.put([{"id": number}])
        stream.run_into(lambda writer: writer.format("json").option("path", str(folder)).start())

    def ids() -> list[int]:
        return sorted(row.id for row in headwater_spark.read.schema("id INT").json(str(folder)).collect())

    run(range(3))
    make_point(stream.files, "early", sink=open_files(str(folder)))
    run(range(3, 9))
    assert 2 not in History(stream.files).batch_ids
    plan = plan_rewind_to(stream.files, find_point(stream.files, "early"), sink=f"files:{folder}")
    plan.apply()
    assert ids() == [0, 1, 2]
    run(range(9, 10))
    assert ids() == list(range(10))
    plan_undo(stream.files, drop_newer=True).apply()
    assert ids() == list(range(9))
    run(range(10, 11))
    assert ids() == list(range(11))


def keep_while_running(pair: StreamPair, feeds: int) -> list[str]:
    """Keep the newest batch again and again while a stream commits batches; return the names of the points."""
    stream, stop = pair.changed, threading.Event()
    names, problems = [], list[BaseException]()

    def keep() -> None:
        while not stop.is_set():
            try:
                names.append(make_point(stream.files).name)
            except HeadwaterError as error:
                if error.code not in ("no-batch", "keep-raced"):
                    problems.append(error)
            except BaseException as error:
                problems.append(error)

    keeper = threading.Thread(target=keep)
    pair.feed(pair.inboxes, feeds)
    keeper.start()
    try:
        rows = stream.run(**FORGETFUL, **{"spark.sql.streaming.stateStore.maintenanceInterval": "10ms"})
    finally:
        stop.set()
        keeper.join()
    assert not problems
    pair.feed(pair.control_inboxes, feeds)
    assert rows == pair.control.run(**{"spark.sql.streaming.minBatchesToRetain": "100000"})
    states = pair.control.states()
    for name in names:
        point = find_point(stream.files, name)
        assert point is not None
        assert sorted(_rows_of_point(stream, name)) == states[point.batch_id]
        if point.batch_id < max(states):
            plan_rewind_to(stream.files, point)
    return names


def test_keeping_does_not_disturb_a_running_stream(stream_pair) -> None:
    """Each point made while Spark commits and removes batches is complete, and the stream ends as without them."""
    pair = stream_pair("aggregation", "changelog")
    names = keep_while_running(pair, 8)
    assert len({find_point(pair.changed.files, name).batch_id for name in names}) > 3
    assert len(restore_points(pair.changed.files)) == len(names)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", STORES)
def test_keeping_while_hundreds_of_batches_are_committed(stream_pair, store: str) -> None:
    """The same over hundreds of batches on each state store."""
    assert len(keep_while_running(stream_pair("aggregation", store), 150)) > 100
