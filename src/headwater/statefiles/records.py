"""What a state file says, as columns: which key was put, deleted, or added to, in which order.

Deltas, HDFS-backed snapshots and changelogs of version 1 are ``length, key, length, value`` with big-endian lengths,
where value length -1 deletes and key length -1 ends the file. Changelogs of version 2 begin with the text ``v2`` and
put a type before each record. Versions 3 and 4 are 1 and 2 after a version and a lineage.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.statefiles.buffers import ByteSpace, Ints, Mask, joined
from headwater.statefiles.refusals import broken_state, unknown_format
from headwater.statefiles.scan import record_starts

if TYPE_CHECKING:
    import numpy.typing as npt

PUT, DELETE, MERGE, DELETE_RANGE = 0x01, 0x10, 0x11, 0x20
_NEWEST_CHANGELOG = 4
_FEW = 10_000
_VERSION_TEXT = re.compile(rb"\x00\x02v([0-9])")


@dataclass(frozen=True)
class Records:
    """Operations on keys. A later ``rank`` wins over an earlier one; for a range deletion the value is the end key."""

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

    def take(self, chosen: Ints | Mask) -> Records:
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
        return self.keys.text(int(self.key_start[number]), int(self.key_length[number]))

    def value(self, number: int) -> bytes:
        return self.values.text(int(self.value_start[number]), int(self.value_length[number]))


def no_records() -> Records:
    empty = np.zeros(0, np.int64)
    nothing = ByteSpace(b"")
    return Records(nothing, nothing, np.zeros(0, np.uint8), empty, empty, empty, empty, empty)


def detached(records: Records) -> Records:
    """The same records, in spaces of their own when they are few: they then keep no whole file in memory."""
    if len(records) > _FEW:
        return records
    keys = [records.key(number) for number in range(len(records))]
    values = [records.value(number) for number in range(len(records))]
    lengths = np.fromiter(map(len, [*keys, *values]), np.int64, 2 * len(records))
    starts = np.cumsum(lengths) - lengths
    space = ByteSpace(b"".join([*keys, *values]))
    return replace(
        records,
        keys=space,
        values=space,
        key_start=starts[: len(records)],
        value_start=starts[len(records) :],
    )


def one_after_another(parts: list[Records]) -> Records:
    """Several files' records as one, later files ranked after earlier ones."""
    return together(ranked([[part] for part in parts]))


def ranked(groups: list[list[Records]]) -> list[Records]:
    """The parts of all groups, with ranks that put later groups after earlier ones."""
    found, first = [], 0
    for group in groups:
        found += [replace(part, rank=part.rank + first) if first else part for part in group]
        first = max([first, *(int(part.rank.max()) + 1 for part in found[-len(group) :] if len(part))])
    return found


def together(parts: list[Records]) -> Records:
    """Several parts as one, ranks as they are."""
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
    """The version a changelog says it has (1 says nothing), where its records begin, and its lineage if it has one."""

    version: int
    begins_at: int
    lineage: tuple[tuple[int, str], ...] = ()


def changelog_header(data: bytes, path: str) -> ChangelogHeader:
    """``data`` is the decompressed file, or at least its beginning."""
    named = _VERSION_TEXT.match(data)
    if not named:
        return ChangelogHeader(1, 0)
    version, at = int(named[1]), 4
    if version == 2:
        return ChangelogHeader(2, at)
    if not 3 <= version <= _NEWEST_CHANGELOG:
        raise unknown_format(path, f"is a changelog of version {version}; versions up to {_NEWEST_CHANGELOG} are known")
    (length,) = struct.unpack_from(">H", data, at)
    at += 2
    try:
        items: list[dict[str, Any]] = json.loads(data[at : at + length])
        lineage = tuple((int(item["version"]), str(item["checkpointUniqueId"])) for item in items)
    except (ValueError, KeyError, TypeError):
        raise broken_state(path, "has a lineage that cannot be read") from None
    return ChangelogHeader(version, at + length, lineage)


def only_plain_records(space: ByteSpace, path: str) -> bool:
    """Whether every record of a file names the one key that it is about: a range of keys has a type, and names two."""
    return not path.endswith(".changelog") or _changelog_header(space, path).version in (1, 3)


def parse_changelog(space: ByteSpace, path: str) -> Records:
    header = _changelog_header(space, path)
    if header.version in (1, 3):
        return parse_plain(space, path, header.begins_at)
    return _parse_typed(space, path, header.begins_at)


def _changelog_header(space: ByteSpace, path: str) -> ChangelogHeader:
    return changelog_header(space.text(0, min(space.size, 1 << 17)), path)


def parse_plain(space: ByteSpace, path: str, begins_at: int = 0) -> Records:
    """Records without a type: deltas, HDFS-backed snapshots, changelogs of version 1 and 3."""
    at = record_starts(space, begins_at, path, typed=False)
    key_length = space.gather(">i4", at).astype(np.int64)
    after_key = at + 4 + key_length
    value_length = space.gather(">i4", after_key).astype(np.int64)
    operation = np.where(value_length < 0, DELETE, PUT).astype(np.uint8)
    rank = np.arange(len(at), dtype=np.int64)
    return Records(space, space, operation, at + 4, key_length, after_key + 4, np.maximum(value_length, 0), rank)


def _parse_typed(space: ByteSpace, path: str, begins_at: int) -> Records:
    at = record_starts(space, begins_at, path, typed=True)
    operation = space.gather("u1", at)
    unknown = set(np.unique(operation).tolist()) - {PUT, DELETE, MERGE, DELETE_RANGE}
    if unknown:
        raise unknown_format(path, f"has records of type {min(unknown)}, which is not known")
    key_length = space.gather(">i4", at + 1).astype(np.int64)
    after_key = at + 5 + key_length
    value_length = space.gather(">i4", after_key).astype(np.int64)
    rank = np.arange(len(at), dtype=np.int64)
    return Records(space, space, operation, at + 5, key_length, after_key + 4, np.maximum(value_length, 0), rank)


def without_row_checksums(records: Records, *, hdfs: bool, multi_valued: bool, deletes_too: bool) -> Records:
    """Rows as they are where the store adds a checksum to each: before the value, or before the key that is deleted.

    A list of values keeps its checksums: each of its elements has one. RocksDB's own deletions have none.
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
