"""A fork beside its original: the batches of both since shortly before the fork, with what each has done since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import ProgressRecord
from headwater.core.text import count
from headwater.views.formatting import format_duration, format_time
from headwater.views.page_points import Point, merge_points, points

BATCHES_BEFORE = 20
MEASURES: dict[str, Callable[[Point], int | None]] = {
    "rows": lambda point: point.rows,
    "duration": lambda point: point.duration_ms,
    "state rows": lambda point: point.state_rows,
    "watermark": lambda point: point.watermark_ms,
}


@dataclass(frozen=True)
class ComparedStream:
    """One of the two streams: its name and all its batches."""

    name: str
    batches: Sequence[Batch]
    progress: Mapping[int, ProgressRecord]


@dataclass(frozen=True)
class ForkComparison:
    """The points of both streams on one time axis. ``at`` is the last batch that they share; None for an empty fork."""

    original: str
    fork: str
    original_points: Sequence[Point]
    fork_points: Sequence[Point]
    at: int | None
    forked_at_ms: int | None
    text: str

    @property
    def fork_point_ms(self) -> int | None:
        """When the original planned the last batch that both share."""
        shared = (point.at_ms for point in self.original_points if point.first <= (self.at or 0) <= point.last)
        return None if self.at is None else next(shared, None)


def compare_fork(
    original: ComparedStream, fork: ComparedStream, at: int | None, forked_at_ms: int | None
) -> ForkComparison:
    """Return both streams from a few batches before the fork on. Batches that the fork took over belong to the original."""
    first = 0 if at is None else at - BATCHES_BEFORE + 1
    last_shared = -1 if at is None else at
    since = [batch for batch in original.batches if batch.batch_id > last_shared]
    own = [batch for batch in fork.batches if batch.batch_id > last_shared]
    before = [batch for batch in original.batches if first <= batch.batch_id <= last_shared]
    return ForkComparison(
        original.name,
        fork.name,
        merge_points(_timed(points([*before, *since], original.progress))),
        merge_points(_timed(points(own, fork.progress))),
        at,
        forked_at_ms,
        _explain(ComparedStream(original.name, since, original.progress), ComparedStream(fork.name, own, fork.progress))
        if own
        else f"{fork.name} has run no batch of its own yet.",
    )


def _timed(found: Sequence[Point]) -> list[Point]:
    return [point for point in found if point.at_ms is not None]


def _explain(original: ComparedStream, fork: ComparedStream) -> str:
    """Return a sentence on what both have done since the fork, and which one is ahead in event time."""
    text = f"Since the fork: {_done(original)}; {_done(fork)}."
    left, right = (_watermark_ms(stream) for stream in (original, fork))
    if left is None or right is None:
        return text
    if left == right:
        return f"{text} Both watermarks are at {format_time(left)}."
    which = "behind" if right < left else "ahead of"
    return (
        f"{text} The watermark of {fork.name} is {format_duration(abs(left - right))} {which} that of {original.name}."
    )


def _done(stream: ComparedStream) -> str:
    rows = [point.rows for point in points(stream.batches, stream.progress)]
    known = "" if None in rows or not rows else f", {count(sum(filter(None, rows)), 'row')}"
    return f"{stream.name} {count(len(stream.batches), 'batch')}{known}"


def _watermark_ms(stream: ComparedStream) -> int | None:
    return stream.batches[-1].watermark_ms if stream.batches else None
