"""The reason why a watermark stands still."""

from __future__ import annotations

from headwater.views.page_points import Point
from headwater.views.page_summary import watermark_story

T0 = 1_700_000_000_000
MINUTE = 60_000


def at(number: int, watermark: int | None, *, rows: int = 5, event: int | None = None) -> Point:
    """A batch each second; times in minutes after T0."""
    return Point(
        number,
        number,
        "reachable",
        at_ms=T0 + number * 1000,
        rows=rows,
        watermark_ms=None if watermark is None else T0 + watermark * MINUTE,
        event_time_ms=None if event is None else T0 + event * MINUTE,
    )


def story(*found: Point, seconds: int = 10, running: bool = True) -> str:
    return watermark_story(found, T0 + seconds * 1000, running=running)


def test_moving() -> None:
    """A watermark that moved with the last batch is fine."""
    assert story(at(0, 1), at(1, 2)).startswith("Moves with every batch")


def test_no_rows() -> None:
    """Batches that read nothing cannot move it."""
    told = story(at(0, 1), at(1, 2, event=9), at(2, 2, rows=0), at(3, 2, rows=0))
    assert "for 3 batches" in told or "these batches read no rows" in told


def test_only_empty_batches() -> None:
    """When all batches at this watermark are empty, that is the reason."""
    assert "these batches read no rows" in story(at(0, 1), at(1, 2, rows=0), at(2, 2, rows=0))


def test_events_are_old() -> None:
    """Rows come, and all of them are older than what was seen before."""
    told = story(at(0, 1, event=8), at(1, 2, event=9), at(2, 3, event=7), at(3, 3, event=6))
    assert "is not newer than what came before" in told


def test_no_batch_for_long() -> None:
    """Only batches move it; whether a query runs at all is part of the reason."""
    assert "no query is running" in story(at(0, 1), at(1, 2), seconds=600, running=False)
    assert "no data comes in" in story(at(0, 1), at(1, 2), seconds=600, running=True)


def test_first_batch() -> None:
    """The first batch runs without a watermark, always."""
    assert "first batch sets it" in story(at(0, None))


def test_query_without_watermark() -> None:
    """A query that never asked for one is told apart from one that waits for data."""
    assert "has no watermark" in story(at(0, None), at(1, None))
    assert "no rows have come in" in story(at(0, None, rows=0), at(1, None, rows=0))


def test_nothing_yet() -> None:
    """Without batches there is nothing to explain."""
    assert story() == "No batch yet."
