"""Why a watermark stands where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.views.page_points import Point
from headwater.views.words import count, moment, span

STILL_AFTER_MS = 60_000


def watermark_story(found: Sequence[Point], now_ms: int, *, running: bool) -> str:
    """One sentence: it moves, or the reason why it does not. Spark moves it only between batches, by the newest event."""
    batches = [point for point in found if point.kind != "rewound"]
    if not batches:
        return "No batch yet."
    newest = batches[-1]
    if newest.watermark_ms is None:
        return _none_yet(batches)
    same = _standing(batches)
    since = batches[-same].at_ms
    if same == 1 and not _is_old(newest, now_ms):
        return f"Moves with every batch; it is at {moment(newest.watermark_ms)}."
    if _is_old(newest, now_ms):
        idle = span(now_ms - newest.at_ms) if newest.at_ms is not None else "a while"
        reason = "no data comes in" if running else "no query is running"
        return f"Stands at {moment(newest.watermark_ms)}: the last batch was {idle} ago ({reason}), and only batches move it."
    stood = f"Has stood at {moment(newest.watermark_ms)} for {count(same, 'batch').replace('batchs', 'batches')}"
    stood += f" (since {moment(since)})" if since is not None else ""
    return f"{stood}: {_reason(batches, same)}."


def _none_yet(batches: Sequence[Point]) -> str:
    if len(batches) == 1:
        return "No watermark yet: the first batch sets it for the next one."
    if all(not point.rows for point in batches):
        return "No watermark yet: no rows have come in."
    if any(point.event_time_ms is not None for point in batches):
        return "No watermark yet: the next batch gets one."
    return "This query has no watermark: its state is never let go by event time, and nothing counts as late."


def _standing(batches: Sequence[Point]) -> int:
    """How many of the newest batches have the same watermark."""
    newest = batches[-1].watermark_ms
    same = 0
    for point in reversed(batches):
        if point.watermark_ms != newest:
            break
        same += 1
    return same


def _is_old(point: Point, now_ms: int) -> bool:
    return point.at_ms is None or now_ms - point.at_ms > STILL_AFTER_MS


def _reason(batches: Sequence[Point], same: int) -> str:
    stood, before = batches[-same:], batches[:-same]
    if all(point.rows == 0 for point in stood):
        return "these batches read no rows"
    newest = max((point.event_time_ms for point in stood if point.event_time_ms is not None), default=None)
    record = max((point.event_time_ms for point in before if point.event_time_ms is not None), default=None)
    if newest is not None and record is not None and newest <= record:
        return f"their newest event ({moment(newest)}) is not newer than what came before ({moment(record)})"
    return "it follows the newest event time by a fixed delay, and no newer event has come"
