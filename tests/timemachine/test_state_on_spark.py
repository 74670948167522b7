"""Every state store and operator, rewound on real Spark: what comes after is what an undisturbed run gives."""

from __future__ import annotations

import pytest

from headwater.timemachine import rewind
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from timemachine.spark_runs import A_SNAPSHOT_EACH, NO_NEW_SNAPSHOTS, STORES
from timemachine.twins import FEEDS, MORE, QUERIES, TO, Twins


def rewind_twice(twins: Twins) -> None:
    """First with the same batches again, then with larger ones and a restart."""
    stream = twins.disturbed
    twins.feed(twins.inboxes, FEEDS)
    first = stream.run()
    states = stream.states()
    assert stream.snapshots_after(TO + 1), "without snapshots of undone batches this test would show nothing"

    plan_rewind(stream.files, to=TO).apply()
    assert stream.run() == {batch: rows for batch, rows in first.items() if batch > TO}
    assert stream.states() == states

    plan_rewind(stream.files, to=TO, replan=True).apply()
    rows = {batch: held for batch, held in first.items() if batch <= TO} | stream.run(files_per_batch=2)
    twins.feed(twins.inboxes, FEEDS + MORE)
    rows |= stream.run(files_per_batch=2)
    assert rows == twins.run_calmly()
    assert stream.states() == twins.calm.states()


@pytest.mark.parametrize(
    ("operator", "store"),
    [
        ("aggregation", "hdfs"),
        ("aggregation", "rocksdb"),
        ("aggregation", "changelog"),
        ("aggregation", "format2"),
        ("dedup", "changelog"),
        ("session", "hdfs"),
        ("two operators", "changelog"),
        ("join", "format2"),
        ("timers", "changelog"),
    ],
)
def test_a_rewound_stream_ends_like_an_undisturbed_one(twins, operator: str, store: str) -> None:
    """Rows of each batch and state at each batch are the same, with the old batches and with other ones."""
    rewind_twice(twins(operator, store))


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("operator", QUERIES)
def test_all_operators_on_all_stores(twins, operator: str, store: str) -> None:
    """The whole matrix, but for custom state on the HDFS-backed store, which Spark does not have."""
    if (operator, store) == ("timers", "hdfs"):
        return
    rewind_twice(twins(operator, store))


@pytest.mark.parametrize("store", ["hdfs", "changelog"])
def test_stale_snapshots_would_win(twins, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With newer state left where it is, the same steps end with wrong state: the tests above can fail."""
    both = twins("aggregation", store)
    stream = both.disturbed
    both.feed(both.inboxes, FEEDS)
    stream.run(**A_SNAPSHOT_EACH)
    monkeypatch.setattr(rewind, "cut_state", lambda history, next_batch: [])
    plan_rewind(stream.files, to=TO, replan=True).apply()
    stream.run(files_per_batch=2, **NO_NEW_SNAPSHOTS)
    both.feed(both.inboxes, FEEDS + MORE)
    stream.run(files_per_batch=2, **NO_NEW_SNAPSHOTS)
    both.run_calmly()
    last = max(both.calm.states())
    assert stream.state(last) != both.calm.state(last)


def test_undo_after_a_second_run(twins) -> None:
    """Undo gives up the second run: the stream goes on from where it was before the rewind."""
    both = twins("aggregation", "changelog")
    stream = both.disturbed
    both.feed(both.inboxes, FEEDS)
    stream.run()
    states = stream.states()
    plan_rewind(stream.files, to=TO, replan=True).apply()
    stream.run(files_per_batch=3)
    assert stream.states() != states
    plan_undo(stream.files, drop_newer=True).apply()
    assert stream.states() == states
    both.feed(both.inboxes, FEEDS + MORE)
    stream.run()
    both.feed(both.calm_inboxes, FEEDS)
    both.calm.run()
    both.feed(both.calm_inboxes, FEEDS + MORE)
    both.calm.run()
    assert stream.states() == both.calm.states()


@pytest.mark.parametrize("operator", ["aggregation", "timers"])
def test_start_over(twins, operator: str) -> None:
    """A rewind to before the first batch gives the whole stream once more, with its old batches or planned anew.

    Custom state has folders in which there never was a file: Spark does not start while they are there.
    """
    both = twins(operator, "changelog")
    both.feed(both.inboxes, FEEDS)
    first = both.disturbed.run()
    for replan in (False, True):
        plan_rewind(both.disturbed.files, to=None, replan=replan).apply()
        assert both.disturbed.run() == first
