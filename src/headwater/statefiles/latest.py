"""Which of many operations on keys still hold at the end: the last one of each key, and what was added since."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headwater.statefiles.buffers import ByteSpace, Ints, Mask
from headwater.statefiles.records import DELETE, DELETE_RANGE, MERGE, PUT, Records, together

if TYPE_CHECKING:
    import numpy.typing as npt


_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(32)
_SMALL = 50_000
_BUCKETS = 1 << 22
_TAIL_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype="<u8")


def surviving(records: Records) -> Records:
    """The puts and merges that make up the state after all operations, in their order.

    A key that was only put has one row; a list that grew by merges has several, the oldest first.
    """
    if DELETE_RANGE in records.operation:
        records = _without_ranges(records)
    if not len(records):
        return records
    hashes = hash_keys(records.keys, records.key_start, records.key_length)
    shared = np.flatnonzero(_shared(hashes))
    kept = records.operation != DELETE
    if len(shared):
        kept[shared] = False
        kept[_last_of_each(records, shared, hashes)] = True
    if MERGE in records.operation:
        return records.take(_grouped(records, np.flatnonzero(kept), hashes))
    return records if bool(kept.all()) else records.take(kept)


def surviving_parts(parts: list[Records]) -> list[Records]:
    """The same for several parts ranked over all, each in its own space: large ones are not copied together."""
    total = sum(map(len, parts))
    if total < _SMALL or any(MERGE in part.operation or part.has_ranges for part in parts):
        return [surviving(together(parts))]
    hashes = np.concatenate([hash_keys(part.keys, part.key_start, part.key_length) for part in parts])
    shared = np.flatnonzero(_shared(hashes))
    if len(shared) > _SMALL:
        return [surviving(together(parts))]
    kept = np.concatenate([part.operation != DELETE for part in parts])
    kept[shared] = False
    kept[_last_by_bytes(parts, shared)] = True
    ends = np.cumsum([len(part) for part in parts])
    return [part.take(kept[end - len(part) : end]) for part, end in zip(parts, ends.tolist(), strict=True)]


def _last_by_bytes(parts: list[Records], chosen: Ints) -> list[int]:
    """Of some records, numbered over all parts: the last put of each key, unless a delete came later."""
    operations: list[tuple[int, int, bytes, bool]] = []
    first = 0
    for part in parts:
        for number in (chosen[(chosen >= first) & (chosen < first + len(part))] - first).tolist():
            put = bool(part.operation[number] == PUT)
            operations.append((int(part.rank[number]), first + number, part.key(number), put))
        first += len(part)
    standing = {key: number if put else -1 for _, number, key, put in sorted(operations)}
    return [number for number in standing.values() if number >= 0]


def _shared(hashes: npt.NDArray[np.uint64]) -> Mask:
    """Which hashes are not alone; a few that are may be among them. Sorting without positions is several times faster."""
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return np.zeros(len(hashes), bool)
    marked = np.zeros(_BUCKETS, bool)
    marked[repeated & np.uint64(_BUCKETS - 1)] = True
    found: Mask = marked[hashes & np.uint64(_BUCKETS - 1)]
    return found


def hash_keys(space: ByteSpace, start: Ints, length: Ints) -> npt.NDArray[np.uint64]:
    """A hash of each key's bytes; equal keys have equal hashes, and callers check those that meet."""
    hashes = length.astype(np.uint64) * _MIX
    if not len(length):
        return hashes
    shortest, longest = int(length.min()), int(length.max())
    for at in range(0, longest, 8):
        if at + 8 <= shortest:
            _mix_in(hashes, space.gather("<u8", start + at))
            continue
        # A key that has ended must not be mixed any further: its hash would depend on its neighbours' lengths.
        inside = np.flatnonzero(length > at)
        some = hashes[inside]
        _mix_in(some, space.gather("<u8", start[inside] + at) & _TAIL_MASKS[np.minimum(length[inside] - at, 8)])
        hashes[inside] = some
    return hashes


def _mix_in(hashes: npt.NDArray[np.uint64], word: npt.NDArray[np.uint64]) -> None:
    hashes ^= word
    hashes *= _MIX
    hashes ^= hashes >> _FOLD


def same_keys(records: Records, left: Ints, right: Ints) -> Mask:
    """Whether pairs of records have the very same key."""
    return _same_bytes(records.keys, records.key_start, records.key_length, left, right)


def same_values(records: Records, left: Ints, right: Ints) -> Mask:
    """Whether pairs of records have the very same value."""
    return _same_bytes(records.values, records.value_start, records.value_length, left, right)


def _same_bytes(space: ByteSpace, start: Ints, length: Ints, left: Ints, right: Ints) -> Mask:
    same: Mask = length[left] == length[right]
    for at in range(0, int(length[left].max(initial=0)), 8):
        remaining = np.clip(length[left] - at, 0, 8)
        inside = same & (remaining > 0)
        mask = _TAIL_MASKS[remaining]
        first = space.gather("<u8", np.where(inside, start[left] + at, 0))
        second = space.gather("<u8", np.where(inside, start[right] + at, 0))
        same &= ~inside | ((first & mask) == (second & mask))
    return same


def _last_of_each(records: Records, chosen: Ints, hashes: npt.NDArray[np.uint64]) -> Ints:
    """Of records whose keys repeat: the last put of each key, unless a delete came later, and the merges after it."""
    chosen = chosen[np.lexsort((records.rank[chosen], hashes[chosen]))]
    joins = hashes[chosen][1:] == hashes[chosen][:-1]
    if not same_keys(records, chosen[1:][joins], chosen[:-1][joins]).all():
        return _last_of_each_by_bytes(records, chosen)
    begins = np.flatnonzero(np.concatenate([[True], ~joins]))
    position = np.arange(len(chosen))
    operation = records.operation[chosen]
    last_reset = np.maximum.reduceat(np.where(operation == MERGE, -1, position), begins)
    reset = np.repeat(last_reset, np.diff(np.append(begins, len(chosen))))
    standing: Ints = chosen[(position > reset) | ((position == reset) & (operation == PUT))]
    return standing


def _last_of_each_by_bytes(records: Records, chosen: Ints) -> Ints:
    """The same without hashes, for the day when two keys have the same one."""
    standing: dict[bytes, list[int]] = {}
    for number in chosen[np.argsort(records.rank[chosen])].tolist():
        key = records.key(number)
        if records.operation[number] == MERGE:
            standing.setdefault(key, []).append(number)
        elif records.operation[number] == PUT:
            standing[key] = [number]
        else:
            standing[key] = []
    return np.array([number for numbers in standing.values() for number in numbers], np.int64)


def _grouped(records: Records, chosen: Ints, hashes: npt.NDArray[np.uint64]) -> Ints:
    """Pieces of one list brought together in their order, lists in the order of their first piece."""
    _, group = np.unique(hashes[chosen], return_inverse=True)
    first = np.full(int(group.max(initial=-1)) + 1, len(records), np.int64)
    np.minimum.at(first, group, chosen)
    return chosen[np.lexsort((records.rank[chosen], first[group]))]


def _without_ranges(records: Records) -> Records:
    """Range deletions carried out: every older key from the first to before the second is as if deleted."""
    ranges = np.flatnonzero(records.operation == DELETE_RANGE)
    gone = np.zeros(len(records), bool)
    gone[ranges] = True
    keys = [records.key(number) for number in range(len(records))]
    for number in ranges.tolist():
        first, end = keys[number], records.value(number)
        older = np.flatnonzero(records.rank < records.rank[number]).tolist()
        gone[[other for other in older if first <= keys[other] < end]] = True
    return records.take(~gone)


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
