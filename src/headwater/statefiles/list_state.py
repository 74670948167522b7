"""The values of list state: several rows in one stored value, each after its length.

Elements that were merged into a list are joined by a delimiter, and each can have a checksum before it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.statefiles.buffers import ByteSpace, Ints
from headwater.statefiles.live_rows import same_keys
from headwater.statefiles.records import PUT, Records

_FOLLOWED_SINGLY = 8


def joined_lists(rows: Records, *, delimiter: int, header: int) -> Records:
    """Return one row per key with all its elements, each after its length. The rows of a key have to be adjacent."""
    if not len(rows):
        return rows
    numbers = np.arange(len(rows))
    same = same_keys(rows, numbers[:-1], numbers[1:])
    first = np.concatenate([[True], ~same])
    group = np.cumsum(first) - 1
    owner, start, size = list_elements(
        rows.values, rows.value_start, rows.value_length, delimiter=delimiter, header=header
    )
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


def list_elements(
    space: ByteSpace, start: Ints, length: Ints, *, delimiter: int, header: int
) -> tuple[Ints, Ints, Ints]:
    """Return for each element its list, where its row begins and the row's length, in the order of the lists.

    ``delimiter`` is the size of what separates two elements, ``header`` that of what precedes each (a row checksum).
    """
    owners: list[Ints] = []
    rows: list[Ints] = []
    sizes: list[Ints] = []
    value, at, end = np.arange(len(start)), start, start + length
    while len(value):
        if len(value) <= _FOLLOWED_SINGLY:
            _follow_each(space, value, at, end, (owners, rows, sizes), delimiter=delimiter, header=header)
            break
        size = space.gather("<i4", at + header).astype(np.int64)
        owners.append(value)
        rows.append(at + header + 4)
        sizes.append(size)
        at = at + header + 4 + size + delimiter
        if (size < 0).any() or (at - delimiter > end).any():
            raise ValueError("a list whose elements extend beyond it")
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
    delimiter: int,
    header: int,
) -> None:
    """Follow one list at a time: the last few can be very long, and a step over few lists costs as much as over many."""
    data = space.data
    for number, start, end in zip(value.tolist(), starts.tolist(), ends.tolist(), strict=True):
        at, rows, sizes = start, [], []
        while at < end:
            size = int.from_bytes(data[at + header : at + header + 4].tobytes(), "little", signed=True)
            if size < 0 or at + header + 4 + size > end:
                raise ValueError("a list whose elements extend beyond it")
            rows.append(at + header + 4)
            sizes.append(size)
            at += header + 4 + size + delimiter
        found[0].append(np.full(len(rows), number, np.int64))
        found[1].append(np.array(rows, np.int64))
        found[2].append(np.array(sizes, np.int64))
