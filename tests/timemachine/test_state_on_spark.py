"""Rewinds of every state store and operator on real Spark: the re-run equals an undisturbed run."""

from __future__ import annotations

import pytest

from headwater.timemachine import cuts
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from timemachine.spark_runs import A_SNAPSHOT_EACH, NO_NEW_SNAPSHOTS, STORES
from timemachine.stream_pairs import FEEDS, FEW, MORE, QUERIES, TO, StreamPair
from versions_support import SPARK

CUSTOM_STATE = {"timers", "custom in pandas"}


def rewind_twice(pair: StreamPair) -> None:
    """Rewind and run the same batches again; then rewind and run larger ones, with a restart."""
    stream = pair.changed
    pair.feed(pair.inboxes, pair.feeds)
    first = stream.run(snapshot_before={pair.feeds: TO + 2})
    states = stream.states()
    assert stream.snapshots_after(TO + 1), "without snapshots of undone batches this test would prove nothing"

    plan_rewind(stream.files, to=TO).apply()
    assert stream.run() == {batch: rows for batch, rows in first.items() if batch > TO}
    assert stream.states() == states

    plan_rewind(stream.files, to=TO, replan=True).apply()
    rows = {batch: held for batch, held in first.items() if batch <= TO} | stream.run(files_per_batch=2)
    pair.feed(pair.inboxes, pair.feeds + MORE)
    rows |= stream.run(files_per_batch=2)
    assert rows == pair.run_control()
    assert stream.states() == pair.control.states()


@pytest.mark.parametrize(
    ("operator", "store", "feeds"),
    [
        ("aggregation", "rocksdb", FEW),
        ("session", "hdfs", FEEDS),
        ("two operators", "format2", FEW),  # deduplication and an aggregation
        ("timers", "changelog", FEW + 1),  # custom state has snapshots of odd versions
    ],
)
def test_a_rewound_stream_ends_like_an_undisturbed_one(stream_pair, operator: str, store: str, feeds: int) -> None:
    """The rows and the state of each batch are the same, with the recorded batches and with larger ones."""
    rewind_twice(stream_pair(operator, store, feeds))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "store"),
    [(operator, store) for operator in QUERIES for store in STORES if operator not in CUSTOM_STATE or store != "hdfs"],
)
def test_all_operators_on_all_stores(stream_pair, operator: str, store: str) -> None:
    """The same for all operators on all stores, except for custom state on HDFS-backed ones, which Spark lacks."""
    if store == "format2" and SPARK < (4, 0):
        pytest.skip("PySpark 4.0 introduced checkpoint format 2")
    rewind_twice(stream_pair(operator, store))


@pytest.mark.parametrize("store", [pytest.param("hdfs", marks=pytest.mark.slow), "changelog"])
def test_state_that_is_not_set_aside_leads_to_wrong_results(
    stream_pair, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If newer state is not set aside, the same steps end with wrong state: the tests above can fail."""
    pair = stream_pair("aggregation", store)
    stream = pair.changed
    pair.feed(pair.inboxes, pair.feeds)
    stream.run(snapshot_before={batch: batch for batch in range(TO + 2, pair.feeds + 1)}, **A_SNAPSHOT_EACH)
    monkeypatch.setattr(cuts, "cut_state", lambda history, next_batch: [])
    plan_rewind(stream.files, to=TO, replan=True).apply()
    stream.run(files_per_batch=2, **NO_NEW_SNAPSHOTS)
    pair.feed(pair.inboxes, pair.feeds + MORE)
    stream.run(files_per_batch=2, **NO_NEW_SNAPSHOTS)
    pair.run_control()
    last = max(pair.control.states())
    assert stream.state(last) != pair.control.state(last)


def test_undo_after_a_second_run(stream_pair) -> None:
    """Undo drops the re-run: the stream continues from where it was before the rewind."""
    pair = stream_pair("aggregation", "changelog")
    stream = pair.changed
    pair.feed(pair.inboxes, pair.feeds)
    stream.run()
    states = stream.states()
    plan_rewind(stream.files, to=TO, replan=True).apply()
    stream.run(files_per_batch=3)
    assert stream.states() != states
    plan_undo(stream.files, drop_newer=True).apply()
    assert stream.states() == states
    pair.feed(pair.inboxes, pair.feeds + MORE)
    stream.run()
    pair.feed(pair.control_inboxes, pair.feeds)
    pair.control.run()
    pair.feed(pair.control_inboxes, pair.feeds + MORE)
    pair.control.run()
    assert stream.states() == pair.control.states()


@pytest.mark.parametrize("operator", [pytest.param("aggregation", marks=pytest.mark.slow), "timers"])
def test_rewind_to_the_start(stream_pair, operator: str) -> None:
    """After a rewind to the start the stream emits all rows again, with recorded offsets or replanned.

    Custom state has folders that never contain a file: Spark does not start while they exist.
    """
    pair = stream_pair(operator, "changelog", FEW)
    pair.feed(pair.inboxes, pair.feeds)
    first = pair.changed.run()
    for replan in (False, True):
        plan_rewind(pair.changed.files, to=None, replan=replan).apply()
        assert pair.changed.run() == first
