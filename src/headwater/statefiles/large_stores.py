"""Read a large store in parts of bounded size.

The oldest file of a version is usually the largest. It is read in parts: the tables of a RocksDB snapshot in ranges of
keys, other files piece by piece. Newer files stay in memory, and a key that they contain is left out of the parts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from headwater.statefiles.buffers import LOW_BYTES, Mask
from headwater.statefiles.flat_file import FlatFile
from headwater.statefiles.live_rows import has_keys_once, hash_keys, live_rows, repeated_hashes
from headwater.statefiles.records import DELETE, DELETE_RANGE, MERGE, Records, concat, detached, no_records
from headwater.statefiles.sst import read_blocks
from headwater.statefiles.sst_file import BlockIndex, TableFile

RECORDS_AT_ONCE = 200_000
_MARKS = 1 << 16
_SPREAD = np.uint64(0x9E3779B97F4A7C15)

Part = Callable[[], Records]


class NewerRecords:
    """The records of newer files, which hide older records of the same keys."""

    def __init__(self, records: Records) -> None:
        self._records = records
        hashes = hash_keys(records.keys, records.key_start, records.key_length)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]
        self._marked = np.zeros(_MARKS, bool)
        self._marked[_marks_of(records)] = True

    def live(self) -> Records:
        """Return the rows that these records leave."""
        return live_rows(self._records)

    def left(self, older: Records) -> Records:
        """Return the older records whose keys do not occur here."""
        hidden = self.hides(older)
        return older.take(~hidden) if hidden.any() else older

    def hides(self, older: Records) -> Mask:
        """Return which older records have a key that occurs here."""
        hidden = np.zeros(len(older), bool)
        if not len(self._hashes) or not len(older):
            return hidden
        # A mark takes one read of the key, and leaves few records of which the whole key has to be read.
        marked = np.flatnonzero(self._marked[_marks_of(older)])
        hashes = hash_keys(older.keys, older.key_start[marked], older.key_length[marked])
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        found = self._hashes[place] == hashes
        likely, own = marked[found], self._order[place[found]]
        same = _same_keys(older, likely, self._records, own)
        hidden[likely[same]] = True
        for number in likely[~same].tolist():  # two keys with the same hash
            hidden[number] = older.key(number) in self._keys
        return hidden

    @cached_property
    def _keys(self) -> frozenset[bytes]:
        return frozenset(self._records.key(number) for number in range(len(self._records)))


def _marks_of(records: Records) -> np.ndarray:
    """Return a small number for each key, from its last eight bytes, in which most keys differ."""
    length = records.key_length
    words = records.keys.gather("<u8", np.maximum(records.key_start + length - 8, 0))
    words = np.where(length < 8, length.astype(np.uint64), words) if len(length) and length.min() < 8 else words
    return (words * _SPREAD) >> np.uint64(48)


def _same_keys(left: Records, left_numbers: np.ndarray, right: Records, right_numbers: np.ndarray) -> Mask:
    length = left.key_length[left_numbers]
    left_at, right_at = left.key_start[left_numbers], right.key_start[right_numbers]
    same: Mask = length == right.key_length[right_numbers]
    for at in range(0, int(length[same].max(initial=0)), 8):
        inside = same & (length > at)
        mask = LOW_BYTES[np.clip(length - at, 0, 8)]
        first = left.keys.gather("<u8", np.where(inside, left_at + at, 0))
        second = right.keys.gather("<u8", np.where(inside, right_at + at, 0))
        same &= ~inside | ((first & mask) == (second & mask))
    return same


def only_puts_and_deletes(records: Records) -> bool:
    """Return whether each record replaces what older ones say about its key."""
    return not np.isin(records.operation, (MERGE, DELETE_RANGE)).any()


def table_parts(
    tables: Sequence[TableFile], newer: NewerRecords, about_target: Callable[[Records, str], Records]
) -> Iterator[Part]:
    """Yield functions that each return the live rows in a range of keys. They can run in any order, and in threads."""
    bounds = [None, *_bounds([table.index for table in tables]), None]

    def part(low: bytes | None, high: bytes | None) -> Records:
        ranges = [about_target(_read_range(table, low, high), table.path) for table in tables]
        return newer.left(_live_in_range([records for records in ranges if len(records)]))

    for low, high in pairwise(bounds):
        yield lambda low=low, high=high: part(low, high)  # type: ignore[misc]


def _live_in_range(tables: list[Records]) -> Records:
    """Return the live rows of tables, of which mostly one is large, and the others have changes of a few of its keys."""
    tables = _joined_neighbors(tables)
    largest = max(tables, key=len, default=no_records())
    others = [records for records in tables if records is not largest]
    if sum(map(len, others)) > len(largest) // 4 or not has_keys_once(largest):
        return live_rows(concat(tables))
    if not others:
        return largest
    again = NewerRecords(concat(others)).hides(largest)
    return concat([largest.take(~again), live_rows(concat([detached(largest.take(again)), *others]))])


def _joined_neighbors(tables: list[Records]) -> list[Records]:
    """Return tables with those as one of which all keys of one come before all keys of the next."""
    found: list[list[Records]] = []
    for records in sorted(tables, key=lambda one: one.key(0)):
        if found and found[-1][-1].key(len(found[-1][-1]) - 1) < records.key(0):
            found[-1].append(records)
        else:
            found.append([records])
    return list(map(concat, found))


def _bounds(indexes: Sequence[BlockIndex]) -> list[bytes]:
    """Return keys that divide the blocks of all tables into ranges of about ``RECORDS_AT_ONCE`` records."""
    per_block = [index.entries / max(1, len(index)) for index in indexes]
    candidates: set[bytes] = set()
    for index, records in zip(indexes, per_block, strict=True):
        step = max(1, int(RECORDS_AT_ONCE / 4 / max(1.0, records)))
        candidates |= {index.separator(number) for number in range(step - 1, len(index) - 1, step)}
    found, done = [], 0.0
    for bound in sorted(candidates):
        up_to = sum(index.up_to(bound) * records for index, records in zip(indexes, per_block, strict=True))
        if up_to - done >= RECORDS_AT_ONCE * 0.75:
            found.append(bound)
            done = up_to
    return found


def _read_range(table: TableFile, low: bytes | None, high: bytes | None) -> Records:
    """Return the records with keys after ``low``, up to and including ``high``."""
    index = table.index
    first = 0 if low is None else index.up_to(low)
    end = len(index) if high is None else min(index.up_to(high) + 1, len(index))
    records = read_blocks(table, slice(first, end))
    numbers = range(len(records))
    begin = 0 if low is None else bisect_right(numbers, low, key=records.key)
    stop = len(records) if high is None else bisect_right(numbers, high, key=records.key)
    return records.take(slice(begin, stop))


def flat_parts(
    file: FlatFile, newer: NewerRecords, about_target: Callable[[Records, str], Records]
) -> Iterator[Part] | None:
    """Yield functions that each return live rows of a piece of a file.

    A snapshot of an HDFS-backed store has each key once. Other files are read twice, the first time to find the keys that
    they contain several times. Return None if there are too many of those, or if the file has merges or range deletions.
    """
    repeated = np.zeros(0, np.uint64) if file.path.endswith(".snapshot") else _repeated_in(file, about_target)
    return None if repeated is None else _flat_parts(file, newer, about_target, repeated)


def _flat_parts(
    file: FlatFile,
    newer: NewerRecords,
    about_target: Callable[[Records, str], Records],
    repeated: np.ndarray,
) -> Iterator[Part]:
    aside: list[Records] = []

    def part(records: Records) -> Records:
        deleted = records.operation == DELETE
        return newer.left(records.take(~deleted) if deleted.any() else records)

    for stored in file.parts():
        records = about_target(stored, file.path)
        if len(repeated):
            hashes = hash_keys(records.keys, records.key_start, records.key_length)
            again = np.isin(hashes, repeated)
            aside.append(detached(records.take(again)))
            records = records.take(~again)
        yield lambda records=records: part(records)  # type: ignore[misc]
    if aside:
        rows = live_rows(concat(aside))
        yield lambda: newer.left(rows)


def _repeated_in(file: FlatFile, about_target: Callable[[Records, str], Records]) -> np.ndarray | None:
    """Return the hashes of keys that occur more than once; None if they are too many, or not all that matters."""
    found = []
    for stored in file.parts():
        records = about_target(stored, file.path)
        if not only_puts_and_deletes(records):
            return None
        found.append(hash_keys(records.keys, records.key_start, records.key_length))
    repeated = repeated_hashes(np.concatenate([*found, np.zeros(0, np.uint64)]))
    return repeated if len(repeated) <= RECORDS_AT_ONCE else None
