"""Batches as points to draw."""

from __future__ import annotations

from dataclasses import replace

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import ProgressRecord
from headwater.core.ids import BatchId
from headwater.timemachine.change import Change
from headwater.timemachine.journal import Entry
from headwater.views.page_points import Point, bucketed, points, rewound

T0 = 1_700_000_000_000


def batch(number: int, *, status: str = "committed", why_not: str | None = None, committed_at_ms: int = T0) -> Batch:
    done = status == "committed"
    return Batch(
        batch_id=BatchId(number),
        status="committed" if done else "planned",
        planned_at_ms=committed_at_ms - 500,
        committed_at_ms=committed_at_ms if done else None,
        watermark_ms=None,
        sources=(),
        state_version=None,
        stores=0,
        stores_lacking=0,
        why_not=why_not,
    )


def rewind(*undone: int, change_id: str = "r1", at_ms: int = T0 + 1) -> Entry:
    change = Change(change_id, "rewind", "", (), to=undone[0] - 1, details={"undone": list(undone)})
    return Entry(1, at_ms, change)


def test_kinds_of_batches() -> None:
    """A batch is kept, within reach of a rewind, or planned; one that was rewound is there as a ghost."""
    batches = [batch(0, why_not="state is gone"), batch(1), batch(2, status="planned")]
    found = points(batches, {}, rewound([rewind(2, 3)]))
    assert [(point.first, point.kind) for point in found] == [
        (0, "kept"),
        (1, "reachable"),
        (2, "planned"),
        (3, "rewound"),
    ]


def test_batch_that_ran_again() -> None:
    """After a rewind a batch that is committed anew is marked, one that stood before is not."""
    journal = rewound([rewind(2, 3)])
    found = points([batch(1), batch(2, committed_at_ms=T0 + 5000)], {}, journal)
    assert [point.kind for point in found] == ["reachable", "again", "rewound"]


def test_undone_rewind_leaves_no_ghosts() -> None:
    """What undo has put back is as if it had never been away."""
    undo = Entry(2, T0 + 2, Change("u1", "undo", "", (), undoes="r1"))
    assert rewound([rewind(2, 3), undo]).gone == frozenset()


def test_report_of_the_batch_that_stood_there_before_is_left_out() -> None:
    """After a rewind the old report of a batch number says nothing about the batch that is planned under it now."""
    old = ProgressRecord(batch_id=5, at_ms=T0 - 3_600_000, input_rows=99, dropped=9)
    assert points([batch(5)], {5: old})[0].dropped is None
    fresh = replace(old, at_ms=T0 - 500)
    assert points([batch(5)], {5: fresh})[0].dropped == 9


def test_ten_thousand_batches_in_few_points() -> None:
    """Neighbours are put together: rows add up, the longest and the latest stand for all, and nothing is lost."""
    many = [
        Point(
            number, number, "reachable", rows=2, dropped=1 if number == 77 else 0, duration_ms=number, state_rows=number
        )
        for number in range(10_000)
    ]
    few = bucketed(many, 240)
    assert len(few) <= 240
    assert sum(point.rows or 0 for point in few) == 20_000
    assert sum(point.dropped or 0 for point in few) == 1
    assert few[0].first == 0 and few[-1].last == 9_999
    assert few[-1].duration_ms == few[-1].state_rows == 9_999
    assert [point.first for point in few[1:]] == [point.last + 1 for point in few[:-1]]


def test_bucket_shows_its_loudest_batch() -> None:
    """One batch that is not committed colours its whole bucket."""
    many = [Point(number, number, "planned" if number == 3 else "kept") for number in range(8)]
    assert [point.kind for point in bucketed(many, 2)] == ["planned", "kept"]


def test_few_batches_stay_as_they_are() -> None:
    """Nothing is put together where there is room."""
    some = [Point(number, number, "kept") for number in range(240)]
    assert bucketed(some, 240) == some
