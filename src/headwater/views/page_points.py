"""Batches as points of a chart, built from the logs and Spark's progress reports, at most as many as a screen shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import ProgressRecord
from headwater.timemachine.journal import Entry

MAX_POINTS = 240
NOTHING_REWOUND: Mapping[int, int] = MappingProxyType({})
Kind = Literal["kept", "reachable", "again", "planned", "rewound"]
# A point for several batches takes the first of these kinds that occurs among them.
_PRECEDENCE: tuple[Kind, ...] = ("rewound", "planned", "again", "reachable", "kept")


@dataclass(frozen=True)
class Point:
    """One batch, or several consecutive ones: with the sum of their rows, the last times and sizes, the longest duration.

    ``kind`` is one of:

    - ``kept``: committed, but can no longer be rewound to
    - ``reachable``: committed, and can be rewound to
    - ``again``: run again after a rewind
    - ``planned``: not committed yet
    - ``rewound``: set aside by a rewind, and not run again yet
    """

    first: int
    last: int
    kind: Kind
    at_ms: int | None = None
    rows: int | None = None
    dropped: int | None = None
    malformed: int | None = None
    duration_ms: int | None = None
    watermark_ms: int | None = None
    event_time_ms: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    lag_rows: int | None = None
    lags: Mapping[str, int] = field(default_factory=dict)
    """The unread records of each source, if there are several."""
    event_times_ms: Mapping[str, int] = field(default_factory=dict)
    """The newest event time of each source since the query started, if there are several."""

    @property
    def label(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}\u2013{self.last}"


def rewind_times_ms(entries: Sequence[Entry]) -> dict[int, int]:
    """Return the batches that were set aside by rewinds that are not undone, each with the time of the last one."""
    undone = {entry.change.undoes for entry in entries if entry.change.undoes}
    at_ms: dict[int, int] = {}
    for entry in entries:
        if entry.change.verb == "rewind" and entry.change.change_id not in undone:
            at_ms |= dict.fromkeys(map(int, entry.change.details.get("undone", ())), entry.done_at_ms)
    return at_ms


def points(
    batches: Sequence[Batch], progress: Mapping[int, ProgressRecord], rewound_at_ms: Mapping[int, int] = NOTHING_REWOUND
) -> list[Point]:
    """Return a point for each batch in the logs, then one for each batch that was rewound and has not run again."""
    found = [_point(batch, progress.get(batch.batch_id), rewound_at_ms.get(batch.batch_id)) for batch in batches]
    newest = batches[-1].batch_id if batches else -1
    found += [Point(number, number, "rewound") for number in sorted(rewound_at_ms) if number > newest]
    return found


def _point(batch: Batch, record: ProgressRecord | None, rewound_at_ms: int | None) -> Point:
    # An older record is that of the batch that had this number before a rewind.
    if record and batch.planned_at_ms is not None and record.at_ms < batch.planned_at_ms - 60_000:
        record = None
    rows = batch.rows if record is None else record.input_rows
    return Point(
        first=batch.batch_id,
        last=batch.batch_id,
        kind=_kind(batch, rewound_at_ms),
        at_ms=batch.planned_at_ms,
        rows=rows,
        dropped=record.dropped if record else None,
        malformed=record.malformed if record else None,
        duration_ms=record.duration_ms if record and record.duration_ms else batch.duration_ms,
        watermark_ms=batch.watermark_ms,
        event_time_ms=record.event_time_max_ms if record else None,
        state_rows=record.state_rows if record else None,
        state_bytes=record.state_bytes if record else None,
        lag_rows=record.lag_rows if record else None,
        lags=_lags(batch, record) if record else {},
        event_times_ms=_event_times(batch, record) if record else {},
    )


def _lags(batch: Batch, record: ProgressRecord) -> dict[str, int]:
    labels = {source.name: source.label for source in batch.sources}
    lags = {source.id: source.lag_rows for source in record.sources if source.id in labels}
    return {labels[source]: lag for source, lag in lags.items() if source and lag is not None and len(labels) > 1}


def _event_times(batch: Batch, record: ProgressRecord) -> dict[str, int]:
    labels = {source.name: source.label for source in batch.sources}
    return {
        labels.get(operator.source or "", f"withWatermark({operator.column})"): operator.max_event_time_ms
        for operator in record.watermarks
        if operator.max_event_time_ms is not None
    }


def _kind(batch: Batch, rewound_at_ms: int | None) -> Kind:
    if batch.status == "planned":
        return "planned"
    if rewound_at_ms is not None and batch.committed_at_ms is not None and batch.committed_at_ms >= rewound_at_ms:
        return "again"
    return "reachable" if batch.can_rewind_to else "kept"


def merge_points(found: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """Return at most ``limit`` points: merge consecutive ones if there are more."""
    if len(found) <= limit:
        return list(found)
    size = -(-len(found) // limit)
    return [_merge(found[start : start + size]) for start in range(0, len(found), size)]


def _merge(group: Sequence[Point]) -> Point:
    last = group[-1]
    return Point(
        first=group[0].first,
        last=last.last,
        kind=next(kind for kind in _PRECEDENCE if any(point.kind == kind for point in group)),
        at_ms=last.at_ms,
        rows=_sum(point.rows for point in group),
        dropped=_sum(point.dropped for point in group),
        malformed=_sum(point.malformed for point in group),
        duration_ms=_max(point.duration_ms for point in group),
        watermark_ms=_last(point.watermark_ms for point in group),
        event_time_ms=_max(point.event_time_ms for point in group),
        state_rows=_last(point.state_rows for point in group),
        state_bytes=_last(point.state_bytes for point in group),
        lag_rows=_last(point.lag_rows for point in group),
        lags=last.lags,
        event_times_ms=last.event_times_ms,
    )


def _known(numbers: Iterable[int | None]) -> list[int]:
    return [number for number in numbers if number is not None]


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = _known(numbers)
    return sum(known) if known else None


def _max(numbers: Iterable[int | None]) -> int | None:
    return max(_known(numbers), default=None)


def _last(numbers: Iterable[int | None]) -> int | None:
    known = _known(numbers)
    return known[-1] if known else None
