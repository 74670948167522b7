"""The explanation of a watermark that does not advance."""

from __future__ import annotations

from dataclasses import replace

from headwater.checkpoint.watermark_hold import Holder, WatermarkHold
from headwater.views.page_points import Point
from headwater.views.page_summary import explain_watermark

T0 = 1_700_000_000_000
MINUTE = 60_000


def at(number: int, watermark: int | None, *, rows: int = 5, event: int | None = None) -> Point:
    """Return a batch, one per second; its times are in minutes after T0."""
    return Point(
        number,
        number,
        "reachable",
        at_ms=T0 + number * 1000,
        rows=rows,
        watermark_ms=None if watermark is None else T0 + watermark * MINUTE,
        event_time_ms=None if event is None else T0 + event * MINUTE,
    )


def explanation(*found: Point, seconds: int = 10, running: bool = True) -> str:
    return explain_watermark(found, T0 + seconds * 1000, running=running)


def test_advancing() -> None:
    """A watermark that advanced with the last batch needs no reason."""
    assert explanation(at(0, 1), at(1, 2)).startswith("Advances with every batch")


def test_number_of_batches() -> None:
    """The number of batches without an advance is shown."""
    assert "for 3 batches" in explanation(at(0, 1), at(1, 2, event=9), at(2, 2, rows=0), at(3, 2, rows=0))


def test_only_empty_batches() -> None:
    """If all batches at this watermark are empty, that is the reason."""
    assert "these batches read no rows" in explanation(at(0, 1), at(1, 2, rows=0), at(2, 2, rows=0))


def test_events_are_old() -> None:
    """If all rows are older than earlier ones, that is the reason."""
    text = explanation(at(0, 1, event=8), at(1, 2, event=9), at(2, 3, event=7), at(3, 3, event=6))
    assert "is not later than the one before them" in text


def test_no_recent_batch() -> None:
    """Only batches advance the watermark; whether a query is running is part of the reason."""
    assert "no query is running" in explanation(at(0, 1), at(1, 2), seconds=600, running=False)
    assert "no data arrives" in explanation(at(0, 1), at(1, 2), seconds=600, running=True)


def test_a_batch_that_takes_long() -> None:
    """While a batch runs, it is the reason and not missing data; without a query, it is not running."""
    planned = replace(at(1, 2), kind="planned")
    assert explanation(at(0, 1), planned, seconds=600).endswith("and batch 1 has been running for 9 min 59 s.")
    assert "no query is running" in explanation(at(0, 1), planned, seconds=600, running=False)


def test_first_batch() -> None:
    """The first batch always runs without a watermark."""
    assert "first batch sets it" in explanation(at(0, None))


def test_query_without_watermark() -> None:
    """A query without a watermark is distinguished from one that waits for data."""
    assert "has no watermark" in explanation(at(0, None), at(1, None))
    assert "no rows were read" in explanation(at(0, None, rows=0), at(1, None, rows=0))


def test_source_that_holds_it_back() -> None:
    """With several sources, the one that holds the watermark back is the reason."""
    hold = WatermarkHold(T0, 1, 3, "min", "event-times", (Holder("1", "clicks", "idle", 0, 0),))
    found = (at(0, 1), at(1, 2), at(2, 2), at(3, 2))
    text = explain_watermark(found, T0 + 10_000, running=True, hold=hold)
    assert text.startswith("Unchanged at 2023-11-14 22:15:20 for 3 batches (since 2023-11-14 22:13:21), because clicks")
    stopped = explain_watermark(found, T0 + 900_000, running=False, hold=hold)
    assert "(no query is running). Before that, it had not moved since batch 1, because clicks has been idle" in stopped
    missing = explain_watermark((at(0, None), at(1, None)), T0, running=True, hold=hold)
    assert missing.startswith("No watermark yet, because clicks has been idle since batch 0")


def test_no_batches() -> None:
    """Without batches there is nothing to explain."""
    assert explanation() == "No batches yet."
