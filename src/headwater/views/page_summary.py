"""The figures at the top of the page, and the sentence that explains the watermark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import ProgressRecord
from headwater.checkpoint.watermark_hold import WatermarkHold
from headwater.core.text import count
from headwater.views.formatting import format_bytes, format_duration, format_time
from headwater.views.page_points import Point

RECENT_BATCHES = 20
IDLE_AFTER_MS = 60_000


@dataclass(frozen=True)
class Figure:
    """A number with its name, and a line of context that is shown below it."""

    name: str
    value: str
    about: str
    alarming: bool = False


def summary_figures(
    batches: Sequence[Batch], progress: dict[int, ProgressRecord], *, now_ms: int, lags: Mapping[str, int | None]
) -> list[Figure]:
    """Return the figures, always in the same order; an unknown number is a dash.

    ``lags`` are the unread records of each Kafka, Delta or Iceberg source, None where they are unknown.
    """
    newest = batches[-1] if batches else None
    recent = [progress[batch.batch_id] for batch in batches[-RECENT_BATCHES:] if batch.batch_id in progress]
    latest = recent[-1] if recent else None
    return [
        _last_batch(newest, now_ms),
        _input_rate(latest),
        _watermark(newest, now_ms),
        _state_size(latest),
        _dropped(list(progress.values())),
        _lag(lags, newest),
        _rewindable(batches, now_ms),
    ]


def rewindable_batches(batches: Sequence[Batch]) -> list[Batch]:
    """Return the batches that can be rewound to, oldest first. Keeping the last batch is not a rewind."""
    return [batch for batch in batches[:-1] if batch.can_rewind_to]


def _last_batch(newest: Batch | None, now_ms: int) -> Figure:
    if newest is None:
        return Figure("Last batch", "-", "no batches yet")
    at = newest.committed_at_ms if newest.committed_at_ms is not None else newest.planned_at_ms
    ago = f"{_whole_seconds(now_ms - at)} ago" if at is not None and now_ms - at >= 1000 else "now"
    return Figure("Last batch", str(newest.batch_id), f"{newest.status} {ago}")


def _input_rate(record: ProgressRecord | None) -> Figure:
    if record is None:
        return Figure("Input", "-", "rows per second")
    return Figure(
        "Input", f"{record.input_rate:,.0f}/s", f"capacity {record.processed_rate:,.0f}/s, {record.duration_ms:,} ms"
    )


def _watermark(newest: Batch | None, now_ms: int) -> Figure:
    if newest is None or newest.watermark_ms is None:
        return Figure("Watermark", "-", "lag behind the clock")
    lag = format_duration((now_ms - newest.watermark_ms) // 1000 * 1000)
    return Figure("Watermark", lag, f"lag; at {format_time(newest.watermark_ms)[11:]}")


def _state_size(record: ProgressRecord | None) -> Figure:
    if record is None or record.state_rows is None:
        return Figure("State", "-", "rows")
    return Figure("State", f"{record.state_rows:,}", f"rows, {format_bytes(record.state_bytes)} in memory")


def _dropped(records: list[ProgressRecord]) -> Figure:
    if not records:
        return Figure("Dropped", "-", "late or malformed")
    dropped, malformed = sum(record.dropped for record in records), sum(record.malformed for record in records)
    return Figure("Dropped", f"{dropped:,}", f"late; {malformed:,} malformed")


def _lag(lags: Mapping[str, int | None], newest: Batch | None) -> Figure:
    reads_table = any(
        source.kind in ("delta", "iceberg") and source.label in lags for source in (newest.sources if newest else ())
    )
    name = "Lag" if reads_table else "Kafka lag"
    known = [lag for lag in lags.values() if lag is not None]
    if not known or len(known) < len(lags):
        return Figure(name, "-", "records not read yet")
    each = ", ".join(f"{label} {lag:,}" for label, lag in lags.items())
    return Figure(name, f"{sum(known):,}", each if len(known) > 1 else "records not read yet")


def _rewindable(batches: Sequence[Batch], now_ms: int) -> Figure:
    found = rewindable_batches(batches)
    if not found:
        return Figure("Rewind", "-", "not possible", alarming=len(batches) > 1)
    oldest = found[0]
    at = oldest.committed_at_ms
    ago = "" if at is None else f", {' '.join(_whole_seconds(now_ms - at).split()[:2])} ago"
    return Figure("Rewind", count(len(found), "batch"), f"back to batch {oldest.batch_id}{ago}")


def _whole_seconds(milliseconds: int) -> str:
    return format_duration(max(0, milliseconds) // 1000 * 1000)


def explain_watermark(found: Sequence[Point], now_ms: int, *, running: bool, hold: WatermarkHold | None = None) -> str:
    """Return a sentence on whether the watermark advances, and why not.

    Spark advances it only between batches, according to the newest event time. ``hold`` names the source that holds it
    back, in a query with several.
    """
    batches = [point for point in found if point.kind != "rewound"]
    if not batches:
        return "No batches yet."
    newest = batches[-1]
    if newest.watermark_ms is None:
        return f"No watermark yet{hold.because}." if hold else _explain_missing(batches)
    at, unchanged = format_time(newest.watermark_ms), _batches_at_this_watermark(batches)
    if newest.at_ms is None or now_ms - newest.at_ms > IDLE_AFTER_MS:
        ago = format_duration(now_ms - newest.at_ms) if newest.at_ms is not None else "a while"
        before = f" Before that, it had not moved since batch {hold.since_batch}{hold.because}." if hold else ""
        if running and newest.kind == "planned":
            return f"Unchanged at {at}: only batches advance it, and batch {newest.last} has been running for {ago}.{before}"
        reason = "no data arrives" if running else "no query is running"
        return f"Unchanged at {at}: only batches advance it, and the last one was {ago} ago ({reason}).{before}"
    if unchanged == 1:
        return f"Advances with every batch; now at {at}."
    first_at_ms = batches[-unchanged].at_ms
    since = f" (since {format_time(first_at_ms)})" if first_at_ms is not None else ""
    if hold is not None:
        return f"Unchanged at {at} for {count(unchanged, 'batch')}{since}{hold.because}."
    reason = _explain_unchanged(batches[-unchanged:], batches[:-unchanged])
    return f"Unchanged at {at} for {count(unchanged, 'batch')}{since}: {reason}."


def _explain_missing(batches: Sequence[Point]) -> str:
    if len(batches) == 1:
        return "No watermark yet: the first batch sets it for the next one."
    if all(not point.rows for point in batches):
        return "No watermark yet: no rows were read."
    if any(point.event_time_ms is not None for point in batches):
        return "No watermark yet: the next batch gets one."
    return "This query has no watermark: state never expires by event time, and no record is late."


def _explain_unchanged(unchanged: Sequence[Point], earlier: Sequence[Point]) -> str:
    if all(point.rows == 0 for point in unchanged):
        return "these batches read no rows"
    newest, before = _newest_event_ms(unchanged), _newest_event_ms(earlier)
    if newest is not None and before is not None and newest <= before:
        return (
            f"the newest event time in these batches ({format_time(newest)}) is not later than the one before them "
            f"({format_time(before)})"
        )
    return "it follows the newest event time by a fixed delay, and no newer event was read"


def _batches_at_this_watermark(batches: Sequence[Point]) -> int:
    """Return how many of the newest batches have the watermark of the last one."""
    watermark_ms = batches[-1].watermark_ms
    return len(list(takewhile(lambda point: point.watermark_ms == watermark_ms, reversed(batches))))


def _newest_event_ms(batches: Sequence[Point]) -> int | None:
    return max((point.event_time_ms for point in batches if point.event_time_ms is not None), default=None)
