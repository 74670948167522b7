"""The records of a state file as columns: which keys were put, deleted or merged into, in which order.

Deltas, HDFS-backed snapshots and changelogs of version 1 consist of ``length, key, length, value`` with big-endian
lengths. A value length of -1 deletes the key; a key length of -1 ends the file. Changelogs of version 2 begin with the
string ``v2`` and have a type byte before each record. Versions 3 and 4 are versions 1 and 2 after a lineage.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.statefiles.buffers import ByteSpace, Ints, Mask, as_numbers, binary, distinct_bytes, joined
from headwater.statefiles.refusals import corrupt_state, unknown_format
from headwater.statefiles.scan import record_starts

if TYPE_CHECKING:
    import numpy.typing as npt

PUT, DELETE, MERGE, DELETE_RANGE = 0x01, 0x10, 0x11, 0x20
_NEWEST_CHANGELOG = 4
_COPIED_AT_MOST = 10_000
_HEADER_BYTES = 1 << 17
_VERSION_TEXT = re.compile(rb"\x00\x02v([0-9])")


@dataclass(frozen=True)
class Records:
    """Operations on keys. The highest ``rank`` wins for each key; the value of a range deletion is its end key."""

    keys: ByteSpace
    values: ByteSpace
    operation: npt.NDArray[np.uint8]
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints
    rank: Ints

    def __len__(self) -> int:
        return len(self.key_start)

    @property
    def has_ranges(self) -> bool:
        return bool((self.operation == DELETE_RANGE).any())

    def take(self, chosen: Ints | Mask | slice) -> Records:
        """Return the records at some indices, in a range, or where a mask is set."""
        return replace(
            self,
            operation=self.operation[chosen],
            key_start=self.key_start[chosen],
            key_length=self.key_length[chosen],
            value_start=self.value_start[chosen],
            value_length=self.value_length[chosen],
            rank=self.rank[chosen],
        )

    def key(self, number: int) -> bytes:
        """Return the key of one record."""
        return self.keys.text(int(self.key_start[number]), int(self.key_length[number]))

    def value(self, number: int) -> bytes:
        """Return the value of one record."""
        return self.values.text(int(self.value_start[number]), int(self.value_length[number]))

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key and the value of each record."""
        numbers = (self.key_start, self.key_length, self.value_start, self.value_length)
        for key, key_size, value, value_size in zip(*(some.tolist() for some in numbers), strict=True):
            yield self.keys.text(key, key_size), self.values.text(value, value_size)


def no_records() -> Records:
    """Return an empty set of records."""
    empty = np.zeros(0, np.int64)
    nothing = ByteSpace(b"")
    return Records(nothing, nothing, np.zeros(0, np.uint8), empty, empty, empty, empty, empty)


def detached(records: Records) -> Records:
    """Return the records, copied to a buffer of their own unless they are most of the file, whose memory is then freed."""
    if len(records) > _COPIED_AT_MOST:
        size = int(records.key_length.sum() + records.value_length.sum())
        return _copied(records) if 2 * size < records.keys.size and size < 1 << 30 else records
    keys = [records.key(number) for number in range(len(records))]
    values = [records.value(number) for number in range(len(records))]
    return records_of(keys, values, records.operation, records.rank)


def _copied(records: Records) -> Records:
    """Return many records in a buffer of their own, which Arrow fills faster than Python."""
    import pyarrow as pa  # noqa: PLC0415  rarely needed

    columns = [
        binary(pa.binary(), space, start, length, None)
        for space, start, length in (
            (records.keys, records.key_start, records.key_length),
            (records.values, records.value_start, records.value_length),
        )
    ]
    spaces = [ByteSpace(np.frombuffer(column.buffers()[2], np.uint8)) for column in columns]
    starts = [as_numbers(column, "<i4").astype(np.int64) for column in columns]
    return replace(records, keys=spaces[0], values=spaces[1], key_start=starts[0], value_start=starts[1])


def records_of(keys: list[bytes], values: list[bytes], operation: npt.NDArray[np.uint8], rank: Ints) -> Records:
    """Return records with these keys and values, in a buffer of their own."""
    count = len(keys)
    lengths = np.fromiter(map(len, [*keys, *values]), np.int64, 2 * count)
    starts = np.cumsum(lengths) - lengths
    space = ByteSpace(b"".join([*keys, *values]))
    return Records(space, space, operation, starts[:count], lengths[:count], starts[count:], lengths[count:], rank)


def concat_ranked(parts: list[Records]) -> Records:
    """Return the records of several files as one, later files ranked above earlier ones."""
    return concat(ranked([[part] for part in parts]))


def ranked(groups: list[list[Records]]) -> list[Records]:
    """Return the parts of all groups with their ranks raised so that later groups outrank earlier ones."""
    found, first = [], 0
    for group in groups:
        found += [replace(part, rank=part.rank + first) if first else part for part in group]
        first = max([first, *(int(part.rank.max()) + 1 for part in found[-len(group) :] if len(part))])
    return found


def concat(parts: list[Records]) -> Records:
    """Return several parts as one, with their ranks unchanged."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return no_records()
    if len(parts) == 1:
        return parts[0]
    keys, key_starts = joined([part.keys for part in parts])
    if all(part.keys is part.values for part in parts):
        values, value_starts = keys, key_starts
    else:
        values, value_starts = joined([part.values for part in parts])
    return Records(
        keys,
        values,
        np.concatenate([part.operation for part in parts]),
        np.concatenate([part.key_start + start for part, start in zip(parts, key_starts, strict=True)]),
        np.concatenate([part.key_length for part in parts]),
        np.concatenate([part.value_start + start for part, start in zip(parts, value_starts, strict=True)]),
        np.concatenate([part.value_length for part in parts]),
        np.concatenate([part.rank for part in parts]),
    )


@dataclass(frozen=True)
class ChangelogHeader:
    """A changelog's version (version 1 has no header), where its records begin, and its lineage if it has one."""

    version: int
    begins_at: int
    lineage: tuple[tuple[int, str], ...] = ()


def changelog_header(space: ByteSpace, path: str) -> ChangelogHeader:
    """Return the header of a decompressed changelog."""
    data = space.text(0, min(space.size, _HEADER_BYTES))
    named = _VERSION_TEXT.match(data)
    if not named:
        return ChangelogHeader(1, 0)
    version, at = int(named[1]), 4
    if version == 2:
        return ChangelogHeader(2, at)
    if not 3 <= version <= _NEWEST_CHANGELOG:
        raise unknown_format(
            path, f"is a changelog of version {version}; versions up to {_NEWEST_CHANGELOG} are supported"
        )
    (length,) = struct.unpack_from(">H", data, at)
    at += 2
    try:
        items: list[dict[str, Any]] = json.loads(data[at : at + length])
        lineage = tuple((int(item["version"]), str(item["checkpointUniqueId"])) for item in items)
    except (ValueError, KeyError, TypeError):
        raise corrupt_state(path, "has a lineage that cannot be parsed") from None
    return ChangelogHeader(version, at + length, lineage)


def parse_changelog(space: ByteSpace, path: str) -> Records:
    """Return the records of a decompressed changelog of any version."""
    header = changelog_header(space, path)
    if header.version in (1, 3):
        return parse_plain(space, path, header.begins_at)
    return _parse_typed(space, path, header.begins_at)


def parse_plain(space: ByteSpace, path: str, begins_at: int = 0) -> Records:
    """Return records without a type byte: deltas, HDFS-backed snapshots, changelogs of versions 1 and 3."""
    return records_at(space, record_starts(space, begins_at, path, typed=False), path, typed=False)


def _parse_typed(space: ByteSpace, path: str, begins_at: int) -> Records:
    return records_at(space, record_starts(space, begins_at, path, typed=True), path, typed=True)


def records_at(space: ByteSpace, at: Ints, path: str, *, typed: bool) -> Records:
    """Return the records that begin at these positions."""
    if not typed:
        return _records_at(space, at, None)
    operation = space.gather("u1", at)
    unknown = distinct_bytes(operation) - {PUT, DELETE, MERGE, DELETE_RANGE}
    if unknown:
        raise unknown_format(path, f"has records of unknown type {min(unknown)}")
    return _records_at(space, at + 1, operation)


def _records_at(space: ByteSpace, at: Ints, operation: npt.NDArray[np.uint8] | None) -> Records:
    """Return the records whose key lengths are at these positions; without types, a negative value length deletes."""
    key_length = space.gather(">i4", at).astype(np.int64)
    after_key = at + 4 + key_length
    value_length = space.gather(">i4", after_key).astype(np.int64)
    if operation is None:
        operation = np.where(value_length < 0, DELETE, PUT).astype(np.uint8)
    rank = np.arange(len(at), dtype=np.int64)
    return Records(space, space, operation, at + 4, key_length, after_key + 4, np.maximum(value_length, 0), rank)


def without_row_checksums(records: Records, *, hdfs: bool, multi_valued: bool, deletes_too: bool) -> Records:
    """Return records without the row checksum that the store adds before a value, or before a key that it deletes.

    A list of values keeps its checksums, because each element has one. RocksDB's own deletions have none.
    """
    deleted = records.operation == DELETE
    key_header = np.where(deleted, 4 if deletes_too else 0, 0)
    header = 4 if hdfs else 8
    in_value = 0 if multi_valued else header
    skipped = np.where(deleted, 0, np.where(records.operation == DELETE_RANGE, header, in_value))
    return replace(
        records,
        key_start=records.key_start + key_header,
        key_length=records.key_length - key_header,
        value_start=records.value_start + skipped,
        value_length=records.value_length - skipped,
    )
