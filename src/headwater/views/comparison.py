"""Two lists of rows, compared. Pure."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class RowsCompared:
    """Rows that only one side has. ``differ`` pairs those that agree in their key columns."""

    batch_id: int
    only_before: tuple[Row, ...]
    only_after: tuple[Row, ...]
    differ: tuple[tuple[Row, Row], ...]

    @property
    def same(self) -> bool:
        return not (self.only_before or self.only_after or self.differ)

    def as_dict(self) -> dict[str, Any]:
        return {
            "batch_id": self.batch_id,
            "same": self.same,
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "differ": [{"before": before, "after": after} for before, after in self.differ],
        }


def compare_rows(batch_id: int, before: Sequence[Row], after: Sequence[Row]) -> RowsCompared:
    """Order does not matter, number does. Rows with the same text fields, times and structs are taken to be the same thing."""
    left = Counter(_text(row) for row in before)
    right = Counter(_text(row) for row in after)
    gone = [json.loads(text) for text in (left - right).elements()]
    new = [json.loads(text) for text in (right - left).elements()]
    twins: dict[str, deque[int]] = {}
    for place, row in enumerate(new):
        twins.setdefault(_identity(row), deque()).append(place)
    pairs: list[tuple[Row, Row]] = []
    only_before: list[Row] = []
    for row in gone:
        same_thing = twins.get(_identity(row)) if _identity(row) else None
        if same_thing:
            pairs.append((row, new[same_thing.popleft()]))
        else:
            only_before.append(row)
    left_over = sorted(place for places in twins.values() for place in places)
    return RowsCompared(batch_id, tuple(only_before), tuple(new[place] for place in left_over), tuple(pairs))


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def _identity(row: Row) -> str:
    """Numbers are what changes; names, windows and keys are what a row is about."""
    names = {name: value for name, value in row.items() if isinstance(value, str | dict) and not _is_time(value)}
    return _text(names) if names else ""


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and len(value) >= 19 and value[4:5] == "-" and value[10:11] == "T"
