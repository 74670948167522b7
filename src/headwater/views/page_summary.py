"""The few numbers at the top of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import ProgressRecord
from headwater.views.page_points import Point
from headwater.views.words import count, moment, span

RECENT = 20


@dataclass(frozen=True)
class Figure:
    """A number with its name, and a line under it that puts it into place."""

    name: str
    value: str
    about: str
    alarming: bool = False


def figures(
    batches: Sequence[Batch], progress: dict[int, ProgressRecord], *, now_ms: int, lag_rows: int | None
) -> list[Figure]:
    """Always the same names in the same order; a dash where a number is not known."""
    newest = batches[-1] if batches else None
    record = progress.get(newest.batch_id) if newest else None
    recent = [progress[batch.batch_id] for batch in batches[-RECENT:] if batch.batch_id in progress]
    return [
        _last_batch(newest, now_ms),
        _rate(record or (recent[-1] if recent else None)),
        _watermark(newest, now_ms),
        _state(record or (recent[-1] if recent else None)),
        _faults(list(progress.values())),
        Figure("Kafka lag", "-" if lag_rows is None else f"{lag_rows:,}", "records not read yet"),
        _reach(batches, now_ms),
    ]


def reach(batches: Sequence[Batch]) -> list[Batch]:
    """The batches that one can rewind to, oldest first; the last one of all is no rewind."""
    return [batch for batch in batches[:-1] if batch.can_rewind_to]


def _last_batch(newest: Batch | None, now_ms: int) -> Figure:
    if newest is None:
        return Figure("Last batch", "-", "no batch yet")
    at = newest.committed_at_ms if newest.committed_at_ms is not None else newest.planned_at_ms
    ago = f"{span(max(0, (now_ms - at) // 1000 * 1000))} ago" if at is not None and now_ms - at >= 1000 else "now"
    return Figure("Last batch", str(newest.batch_id), f"{newest.status} {ago}")


def _rate(record: ProgressRecord | None) -> Figure:
    if record is None:
        return Figure("Input", "-", "rows a second")
    return Figure(
        "Input", f"{record.input_rate:,.0f}/s", f"can do {record.processed_rate:,.0f}/s, {record.duration_ms:,} ms"
    )


def _watermark(newest: Batch | None, now_ms: int) -> Figure:
    if newest is None or newest.watermark_ms is None:
        return Figure("Watermark", "-", "behind the clock")
    return Figure(
        "Watermark",
        span((now_ms - newest.watermark_ms) // 1000 * 1000),
        f"behind; at {moment(newest.watermark_ms)[11:]}",
    )


def _state(record: ProgressRecord | None) -> Figure:
    if record is None or record.state_rows is None:
        return Figure("State", "-", "rows")
    return Figure("State", f"{record.state_rows:,}", f"rows, {size(record.state_bytes)} in memory")


def _faults(records: list[ProgressRecord]) -> Figure:
    if not records:
        return Figure("Dropped", "-", "late or malformed")
    dropped, malformed = sum(held.dropped for held in records), sum(held.malformed for held in records)
    return Figure("Dropped", f"{dropped:,}", f"late; {malformed:,} malformed")


def _reach(batches: Sequence[Batch], now_ms: int) -> Figure:
    found = reach(batches)
    if not found:
        return Figure("Rewind", "-", "to no batch", alarming=len(batches) > 1)
    oldest = found[0]
    at = oldest.committed_at_ms
    ago = f", {_short(now_ms - at)} back" if at is not None else ""
    return Figure("Rewind", count(len(found), "batch").replace("batchs", "batches"), f"to batch {oldest.batch_id}{ago}")


def _short(milliseconds: int) -> str:
    """A span in its largest unit alone."""
    return " ".join(span(max(0, milliseconds) // 1000 * 1000).split()[:2])


def size(number: int | None) -> str:
    """``3.4 MB``."""
    if number is None:
        return "-"
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


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
