"""Reduce operations on keys to the rows that are live after all of them: each key's last put and later merges.

Keys are compared by hash first. Sorting and comparing happens only for records whose hash occurs more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headwater.statefiles.buffers import LOW_BYTES, ByteSpace, Ints, Mask
from headwater.statefiles.records import DELETE, DELETE_RANGE, MERGE, PUT, Records, concat

if TYPE_CHECKING:
    import numpy.typing as npt

_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(32)
_COPIED_AT_MOST = 50_000
_BUCKETS = 1 << 22


def live_rows(records: Records) -> Records:
    """Return the puts and merges that make up the state after all operations, in their order.

    A key that was only put has one row. A list that grew by merges has several, the oldest first.
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


def has_keys_once(ordered: Records) -> bool:
    """Return whether records in the order of their keys are puts of different keys, so that all of them are live."""
    if not len(ordered) or not bool((ordered.operation == PUT).all()):
        return not len(ordered)
    # Different keys mostly differ in their last bytes.
    ends = ordered.keys.gather("<u8", np.maximum(ordered.key_start + ordered.key_length - 8, 0))
    likely = np.flatnonzero((ends[1:] == ends[:-1]) & (ordered.key_length[1:] == ordered.key_length[:-1]))
    return not same_keys(ordered, likely + 1, likely).any()


def live_rows_by_part(parts: list[Records]) -> list[Records]:
    """Return the live rows of parts that are ranked together, without copying large parts into one buffer."""
    total = sum(map(len, parts))
    if total < _COPIED_AT_MOST or any(MERGE in part.operation or part.has_ranges for part in parts):
        return [live_rows(concat(parts))]
    hashes = np.concatenate([hash_keys(part.keys, part.key_start, part.key_length) for part in parts])
    shared = np.flatnonzero(_shared(hashes))
    if len(shared) > _COPIED_AT_MOST:
        return [live_rows(concat(parts))]
    kept = np.concatenate([part.operation != DELETE for part in parts])
    kept[shared] = False
    kept[_last_by_bytes(parts, shared)] = True
    ends = np.cumsum([len(part) for part in parts])
    return [part.take(kept[end - len(part) : end]) for part, end in zip(parts, ends.tolist(), strict=True)]


def _last_by_bytes(parts: list[Records], chosen: Ints) -> list[int]:
    """Return the last put of each key unless a delete follows; records are numbered across all parts."""
    operations: list[tuple[int, int, bytes, bool]] = []
    first = 0
    for part in parts:
        for number in (chosen[(chosen >= first) & (chosen < first + len(part))] - first).tolist():
            put = bool(part.operation[number] == PUT)
            operations.append((int(part.rank[number]), first + number, part.key(number), put))
        first += len(part)
    live = {key: number if put else -1 for _, number, key, put in sorted(operations)}
    return [number for number in live.values() if number >= 0]


def _shared(hashes: npt.NDArray[np.uint64]) -> Mask:
    """Return which hashes occur more than once; a few that do not may be included."""
    repeated = repeated_hashes(hashes)
    if not len(repeated):
        return np.zeros(len(hashes), bool)
    marked = np.zeros(_BUCKETS, bool)
    marked[repeated & np.uint64(_BUCKETS - 1)] = True
    found: Mask = marked[hashes & np.uint64(_BUCKETS - 1)]
    return found


def repeated_hashes(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the hashes that occur more than once."""
    # Sorting the hashes alone is several times faster than sorting them with their positions.
    ordered = np.sort(hashes)
    repeated: npt.NDArray[np.uint64] = ordered[1:][ordered[1:] == ordered[:-1]]
    return repeated


def hash_keys(space: ByteSpace, start: Ints, length: Ints) -> npt.NDArray[np.uint64]:
    """Return a hash of each key's bytes. Callers have to compare the keys of equal hashes."""
    hashes = length.astype(np.uint64) * _MIX
    if not len(length):
        return hashes
    shortest, longest = int(length.min()), int(length.max())
    for at in range(0, longest, 8):
        if at + 8 <= shortest:
            _mix_in(hashes, space.gather("<u8", start + at))
            continue
        # A key that has ended must not be mixed again: its hash would depend on the lengths of other keys.
        inside = np.flatnonzero(length > at)
        some = hashes[inside]
        _mix_in(some, space.gather("<u8", start[inside] + at) & LOW_BYTES[np.minimum(length[inside] - at, 8)])
        hashes[inside] = some
    return hashes


def _mix_in(hashes: npt.NDArray[np.uint64], word: npt.NDArray[np.uint64]) -> None:
    hashes ^= word
    hashes *= _MIX
    hashes ^= hashes >> _FOLD


def same_keys(records: Records, left: Ints, right: Ints) -> Mask:
    """Return which pairs of records have identical keys."""
    return _same_bytes(records.keys, records.key_start, records.key_length, left, right)


def same_values(records: Records, left: Ints, right: Ints) -> Mask:
    """Return which pairs of records have identical values."""
    return _same_bytes(records.values, records.value_start, records.value_length, left, right)


def _same_bytes(space: ByteSpace, start: Ints, length: Ints, left: Ints, right: Ints) -> Mask:
    same: Mask = length[left] == length[right]
    for at in range(0, int(length[left].max(initial=0)), 8):
        remaining = np.clip(length[left] - at, 0, 8)
        inside = same & (remaining > 0)
        mask = LOW_BYTES[remaining]
        first = space.gather("<u8", np.where(inside, start[left] + at, 0))
        second = space.gather("<u8", np.where(inside, start[right] + at, 0))
        same &= ~inside | ((first & mask) == (second & mask))
    return same


def _last_of_each(records: Records, chosen: Ints, hashes: npt.NDArray[np.uint64]) -> Ints:
    """Return the last put of each repeated key unless a delete follows, and the merges after it."""
    chosen = chosen[np.lexsort((records.rank[chosen], hashes[chosen]))]
    joins = hashes[chosen][1:] == hashes[chosen][:-1]
    if not same_keys(records, chosen[1:][joins], chosen[:-1][joins]).all():
        return _last_of_each_by_bytes(records, chosen)
    begins = np.flatnonzero(np.concatenate([[True], ~joins]))
    position = np.arange(len(chosen))
    operation = records.operation[chosen]
    last_reset = np.maximum.reduceat(np.where(operation == MERGE, -1, position), begins)
    reset = np.repeat(last_reset, np.diff(np.append(begins, len(chosen))))
    live: Ints = chosen[(position > reset) | ((position == reset) & (operation == PUT))]
    return live


def _last_of_each_by_bytes(records: Records, chosen: Ints) -> Ints:
    """Do the same by comparing keys, for the case that two keys have the same hash."""
    live: dict[bytes, list[int]] = {}
    for number in chosen[np.argsort(records.rank[chosen])].tolist():
        key = records.key(number)
        if records.operation[number] == MERGE:
            live.setdefault(key, []).append(number)
        elif records.operation[number] == PUT:
            live[key] = [number]
        else:
            live[key] = []
    return np.array([number for numbers in live.values() for number in numbers], np.int64)


def _grouped(records: Records, chosen: Ints, hashes: npt.NDArray[np.uint64]) -> Ints:
    """Return records with those of each key adjacent and in order, keys in the order of their first record."""
    _, group = np.unique(hashes[chosen], return_inverse=True)
    by_hash = chosen[np.argsort(group, kind="stable")]
    joins = hashes[by_hash][1:] == hashes[by_hash][:-1]
    if not same_keys(records, by_hash[1:][joins], by_hash[:-1][joins]).all():
        numbers: dict[bytes, int] = {}
        group = np.array([numbers.setdefault(records.key(number), len(numbers)) for number in chosen.tolist()])
    first = np.full(int(group.max(initial=-1)) + 1, len(records), np.int64)
    np.minimum.at(first, group, chosen)
    return chosen[np.lexsort((records.rank[chosen], first[group]))]


def _without_ranges(records: Records) -> Records:
    """Apply range deletions: remove every older record whose key lies in a range, the end key excluded."""
    ranges = np.flatnonzero(records.operation == DELETE_RANGE)
    removed = np.zeros(len(records), bool)
    removed[ranges] = True
    keys = [records.key(number) for number in range(len(records))]
    for number in ranges.tolist():
        first, end = keys[number], records.value(number)
        older = np.flatnonzero(records.rank < records.rank[number]).tolist()
        removed[[other for other in older if first <= keys[other] < end]] = True
    return records.take(~removed)
