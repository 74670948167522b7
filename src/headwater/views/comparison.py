"""Comparison of the rows that two runs of a batch emit."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class RowsCompared:
    """The rows that differ between two runs of a batch. ``differ`` pairs rows with equal key columns."""

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
    """Compare two lists of rows as multisets. Pair the rows that differ but have the same identity (see ``_identity``)."""
    left = Counter(_text(row) for row in before)
    right = Counter(_text(row) for row in after)
    removed = [json.loads(text) for text in (left - right).elements()]
    added = [json.loads(text) for text in (right - left).elements()]
    unpaired: dict[str, deque[int]] = {}
    for index, row in enumerate(added):
        unpaired.setdefault(_identity(row), deque()).append(index)
    pairs: list[tuple[Row, Row]] = []
    only_before: list[Row] = []
    for row in removed:
        candidates = unpaired.get(_identity(row)) if _identity(row) else None
        if candidates:
            pairs.append((row, added[candidates.popleft()]))
        else:
            only_before.append(row)
    remaining = sorted(index for indexes in unpaired.values() for index in indexes)
    return RowsCompared(batch_id, tuple(only_before), tuple(added[index] for index in remaining), tuple(pairs))


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def _identity(row: Row) -> str:
    """Return the texts and structs of a row, which name what it is about; numbers and times are what changes."""
    names = {name: value for name, value in row.items() if isinstance(value, str | dict) and not _is_time(value)}
    return _text(names) if names else ""


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and len(value) >= 19 and value[4:5] == "-" and value[10:11] == "T"
