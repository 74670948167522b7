"""Lists brought into one piece: what a state file has as a put and later additions becomes one value for each key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.statefiles.bytespace import ByteSpace
from headwater.statefiles.latest import same_keys
from headwater.statefiles.records import PUT, Records
from headwater.statefiles.values import list_elements


def whole_lists(rows: Records, *, between: int, before: int) -> Records:
    """One row for each key, its elements after their lengths with nothing between. Rows of a key are neighbours."""
    if not len(rows):
        return rows
    numbers = np.arange(len(rows))
    same = same_keys(rows, numbers[:-1], numbers[1:])
    first = np.concatenate([[True], ~same])
    group = np.cumsum(first) - 1
    owner, start, size = list_elements(rows.values, rows.value_start, rows.value_length, between=between, before=before)
    parts: list[list[bytes]] = [[] for _ in range(int(group[-1]) + 1)]
    for number, at, length in zip(group[owner].tolist(), start.tolist(), size.tolist(), strict=True):
        parts[number].append(rows.values.text(at - 4, length + 4))
    values = [b"".join(part) for part in parts]
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    kept = rows.take(first)
    return replace(
        kept,
        values=ByteSpace(b"".join(values)),
        value_start=np.cumsum(lengths) - lengths,
        value_length=lengths,
        operation=np.full(len(values), PUT, np.uint8),
    )
