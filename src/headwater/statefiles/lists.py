"""Values that are lists: elements after their length, joined by a comma (merge operator version 1) or by nothing.

What a state file has as a put and later additions becomes one value for each key.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.statefiles.bytespace import ByteSpace, Ints
from headwater.statefiles.latest import same_keys
from headwater.statefiles.records import PUT, Records

_FEW = 8


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


def list_elements(space: ByteSpace, start: Ints, length: Ints, *, between: int, before: int) -> tuple[Ints, Ints, Ints]:
    """Each element's value, where its row begins and the row's length, values in order.

    ``between`` is the size of what joins elements, ``before`` that of what precedes each one (a row checksum).
    """
    owners: list[Ints] = []
    rows: list[Ints] = []
    sizes: list[Ints] = []
    value, at, end = np.arange(len(start)), start, start + length
    while len(value):
        if len(value) <= _FEW:
            _follow_each(space, value, at, end, (owners, rows, sizes), between=between, before=before)
            break
        size = space.gather("<i4", at + before).astype(np.int64)
        owners.append(value)
        rows.append(at + before + 4)
        sizes.append(size)
        at = at + before + 4 + size + between
        if (size < 0).any() or (at - between > end).any():
            raise ValueError("a list whose elements do not fit it")
        going = at < end
        value, at, end = value[going], at[going], end[going]
    owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    order = np.argsort(owner, kind="stable")
    if not len(order):
        return owner, owner, owner
    return owner[order], np.concatenate(rows)[order], np.concatenate(sizes)[order]


def _follow_each(
    space: ByteSpace,
    value: Ints,
    starts: Ints,
    ends: Ints,
    found: tuple[list[Ints], list[Ints], list[Ints]],
    *,
    between: int,
    before: int,
) -> None:
    """One list at a time: the last few may be very long, and steps over few lists cost as much as over many."""
    data = space.data
    for number, start, end in zip(value.tolist(), starts.tolist(), ends.tolist(), strict=True):
        at, rows, sizes = start, [], []
        while at < end:
            size = int.from_bytes(data[at + before : at + before + 4].tobytes(), "little", signed=True)
            if size < 0 or at + before + 4 + size > end:
                raise ValueError("a list whose elements do not fit it")
            rows.append(at + before + 4)
            sizes.append(size)
            at += before + 4 + size + between
        found[0].append(np.full(len(rows), number, np.int64))
        found[1].append(np.array(rows, np.int64))
        found[2].append(np.array(sizes, np.int64))
