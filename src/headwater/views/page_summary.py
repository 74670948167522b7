"""The few numbers at the top of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.checkpoint.history import Batch
from headwater.checkpoint.progress_log import ProgressRecord
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
