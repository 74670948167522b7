"""Batches as points to draw: what the logs tell and what Spark reported, in as few points as a screen can show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import ProgressRecord
from headwater.timemachine.journal import Entry

MOST_POINTS = 240
Kind = Literal["kept", "reachable", "again", "planned", "rewound"]
# In a bucket of several batches the one that a person wants to see stands for all.
_LOUDEST: tuple[Kind, ...] = ("rewound", "planned", "again", "reachable", "kept")


@dataclass(frozen=True)
class Point:
    """One batch, or several neighbours: rows are then their sum, times and sizes the last one's, durations the longest.

    ``kind``: ``kept`` is committed but can no longer be rewound to, ``reachable`` can, ``again`` ran again after a rewind,
    ``planned`` is not committed yet, ``rewound`` was set aside and has not run again.
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

    @property
    def label(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}\u2013{self.last}"


@dataclass(frozen=True)
class Rewound:
    """What the journal says about batches that a rewind set aside."""

    gone: frozenset[int] = field(default_factory=frozenset)
    """Set aside by a rewind that nobody has undone."""
    at_ms: Mapping[int, int] = field(default_factory=dict)
    """When each of them was last set aside."""


NOTHING_REWOUND = Rewound()


def rewound(entries: Sequence[Entry]) -> Rewound:
    taken_back = {entry.change.undoes for entry in entries if entry.change.undoes}
    at_ms: dict[int, int] = {}
    for entry in entries:
        if entry.change.verb == "rewind" and entry.change.change_id not in taken_back:
            at_ms |= dict.fromkeys(map(int, entry.change.details.get("undone", ())), entry.done_at_ms)
    return Rewound(frozenset(at_ms), at_ms)


def points(
    batches: Sequence[Batch], progress: Mapping[int, ProgressRecord], journal: Rewound = NOTHING_REWOUND
) -> list[Point]:
    """A point for each batch in the logs, then one for each that was rewound and has not run again."""
    found = [_point(batch, progress.get(batch.batch_id), journal) for batch in batches]
    newest = batches[-1].batch_id if batches else -1
    found += [Point(number, number, "rewound") for number in sorted(journal.gone) if number > newest]
    return found


def _point(batch: Batch, record: ProgressRecord | None, journal: Rewound) -> Point:
    # A record may be of the batch that stood under this number before a rewind; it is too old then.
    if record and batch.planned_at_ms is not None and record.at_ms < batch.planned_at_ms - 60_000:
        record = None
    rows = batch.rows if record is None else record.input_rows
    return Point(
        first=batch.batch_id,
        last=batch.batch_id,
        kind=_kind(batch, journal),
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
    )


def _kind(batch: Batch, journal: Rewound) -> Kind:
    if batch.status == "planned":
        return "planned"
    since = journal.at_ms.get(batch.batch_id)
    if since is not None and batch.committed_at_ms is not None and batch.committed_at_ms >= since:
        return "again"
    return "reachable" if batch.can_rewind_to else "kept"


def bucketed(found: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most so many points, neighbours put together; unchanged where there are few."""
    if len(found) <= most:
        return list(found)
    size = -(-len(found) // most)
    return [_together(found[start : start + size]) for start in range(0, len(found), size)]


def _together(group: Sequence[Point]) -> Point:
    last = group[-1]
    return Point(
        first=group[0].first,
        last=last.last,
        kind=next(kind for kind in _LOUDEST if any(point.kind == kind for point in group)),
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
