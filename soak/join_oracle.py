"""The expected results of ad-attribution: impressions outer-joined with the clicks that follow them within an hour.

In each batch, impressions meet the clicks that wait in the state, then clicks meet all impressions, and then rows that the
watermark has passed leave the state. An impression that leaves without a match is emitted without a click.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from soak.oracle import MINUTE_MS, Bag, ExpectedBatch, Key
from soak.records import milliseconds
from soak.watermarks import Arrival, BatchInput, follow_watermarks

IMPRESSIONS, CLICKS = "impressions", "clicks"
DELAY_MS = 10 * MINUTE_MS
WITHIN_MS = 60 * MINUTE_MS
TIME = {IMPRESSIONS: "shown_at", CLICKS: "clicked_at"}
STORES = {IMPRESSIONS: "left", CLICKS: "right"}


@dataclass
class _Waiting:
    """A row of the state."""

    impression: str | None
    ad: str | None
    time_ms: int
    matched: bool = False


@dataclass
class _State:
    """The rows of both sides, by impression."""

    within_ms: int
    sides: dict[str, dict[str | None, list[_Waiting]]] = field(
        default_factory=lambda: {IMPRESSIONS: defaultdict(list), CLICKS: defaultdict(list)}
    )

    def matches(self, side: str, row: _Waiting) -> list[_Waiting]:
        """Return the rows of a side that belong to a row of the other side, and mark all of them as matched."""
        found = []
        for other in self.sides[side].get(row.impression, ()) if row.impression is not None else ():
            shown, clicked = (other, row) if side == IMPRESSIONS else (row, other)
            if shown.time_ms <= clicked.time_ms <= shown.time_ms + self.within_ms:
                other.matched = row.matched = True
                found.append(other)
        return found

    def add(self, side: str, row: _Waiting) -> None:
        self.sides[side][row.impression].append(row)

    def evict(self, side: str, before_ms: int) -> list[_Waiting]:
        """Remove and return the rows of a side that are older than a time."""
        rows = self.sides[side]
        evicted = [row for waiting in rows.values() for row in waiting if row.time_ms < before_ms]
        for key in list(rows):
            rows[key] = [row for row in rows[key] if row.time_ms >= before_ms]
            if not rows[key]:
                del rows[key]
        return evicted

    def as_bag(self) -> Bag:
        """Return the rows of Spark's four state stores; the order of the rows of a key is not compared."""
        bag: Bag = Counter()
        for side, rows in self.sides.items():
            for key, waiting in rows.items():
                bag[(f"{STORES[side]}-keyToNumValues", key), (len(waiting),)] += 1
                for row in waiting:
                    bag[(f"{STORES[side]}-keyWithIndexToValue", key), (row.ad, row.time_ms, row.matched)] += 1
        return bag


def simulate_attribution(batches: Sequence[BatchInput], within_ms: int = WITHIN_MS) -> list[ExpectedBatch]:
    """Return the expected results of all batches, from the first on."""
    state = _State(within_ms)
    expected = []
    watermarks = follow_watermarks(batches, (IMPRESSIONS, CLICKS), _time_ms, DELAY_MS)
    for batch, (drops_ms, evicts_ms) in zip(batches, watermarks, strict=True):
        counted = [(record, time_ms) for record in batch.records if (time_ms := _time_ms(record)) is not None]
        late = frozenset(record.place for record, time_ms in counted if time_ms <= drops_ms)
        fresh = {
            side: [_row(record) for record, time_ms in counted if record.source == side and time_ms > drops_ms]
            for side in (IMPRESSIONS, CLICKS)
        }
        emitted = Counter() if batch.carried else _join(state, fresh, evicts_ms)
        expected.append(ExpectedBatch(batch.batch_id, evicts_ms, emitted, state.as_bag(), late))
    return expected


def _join(state: _State, fresh: dict[str, list[_Waiting]], watermark_ms: int) -> Bag:
    """Perform one batch on the state and return what it emits."""
    emitted: Bag = Counter()
    for shown in fresh[IMPRESSIONS]:
        for clicked in state.matches(CLICKS, shown):
            emitted[_attributed(shown, clicked), ()] += 1
        state.add(IMPRESSIONS, shown)
    for clicked in fresh[CLICKS]:
        for shown in state.matches(IMPRESSIONS, clicked):
            emitted[_attributed(shown, clicked), ()] += 1
        state.add(CLICKS, clicked)
    for shown in state.evict(IMPRESSIONS, watermark_ms - state.within_ms):
        if not shown.matched:
            emitted[_attributed(shown, None), ()] += 1
    state.evict(CLICKS, watermark_ms)
    return emitted


def _time_ms(record: Arrival) -> int | None:
    """Return the event time; a click without an impression can match nothing, and Spark removes it before the join."""
    if record.source == CLICKS and record.fields["impression"] is None:
        return None
    return milliseconds(record.fields[TIME[record.source]])


def _row(record: Arrival) -> _Waiting:
    fields: dict[str, Any] = record.fields
    return _Waiting(fields["impression"], fields.get("ad"), milliseconds(fields[TIME[record.source]]))


def _attributed(shown: _Waiting, clicked: _Waiting | None) -> Key:
    return shown.impression, shown.ad, shown.time_ms, None if clicked is None else clicked.time_ms
