"""State files as Spark writes them: operations on keys as a delta, a snapshot or a changelog, compressed."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Literal

from headwater.statefiles.codecs import compressed
from headwater.statefiles.records import DELETE, MERGE, PUT

Operation = tuple[int, bytes, bytes]
"""A put, delete or merge (see ``records``), its key with the id of the column family, and its value."""

Lineage = Sequence[tuple[int, str]]
_END = struct.pack(">i", -1)
_RECORDS_AT_ONCE = 10_000


def put(key: bytes, value: bytes) -> Operation:
    return (PUT, key, value)


def delete(key: bytes) -> Operation:
    return (DELETE, key, b"")


def plain_file(operations: Iterable[Operation], codec: str) -> Iterator[bytes]:
    """Yield a delta or snapshot of an HDFS-backed store in pieces. A snapshot contains only puts."""
    return compressed(_joined(chain(_plain(operations), [_END])), codec)


def changelog_file(
    operations: Iterable[Operation], codec: str, *, families: bool, lineage: Lineage | None = None
) -> Iterator[bytes]:
    """Yield a changelog in pieces: of version 1, or 2 with column families; with a lineage (format 2), of 3 or 4."""
    version: Literal[1, 2, 3, 4] = 4 if families else 3
    if lineage is None:
        version = 2 if families else 1
    header = b"" if version == 1 else _utf(f"v{version}")
    if lineage is not None:
        items = [{"version": number, "checkpointUniqueId": unique_id} for number, unique_id in lineage]
        header += _utf(json.dumps(items, separators=(",", ":")))
    records = chain(_typed(operations), [b"\0"]) if families else chain(_plain(operations), [_END])
    return compressed(chain([header], _joined(records)), codec)


def _joined(records: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in larger parts."""
    waiting = iter(records)
    while part := b"".join(islice(waiting, _RECORDS_AT_ONCE)):
        yield part


def _plain(operations: Iterable[Operation]) -> Iterator[bytes]:
    for kind, key, value in operations:
        if kind == MERGE:
            raise ValueError("a merge can only be written with column families")
        yield _size(key) + key + (_END if kind == DELETE else _size(value) + value)


def _typed(operations: Iterable[Operation]) -> Iterator[bytes]:
    for kind, key, value in operations:
        yield bytes((kind,)) + _size(key) + key + (_END if kind == DELETE else _size(value) + value)


def _size(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big")


def _utf(text: str) -> bytes:
    """Return a string as Java's ``writeUTF`` does. The texts here are ASCII."""
    data = text.encode("ascii")
    if len(data) >= 1 << 16:
        raise ValueError("a lineage of more than 64 kB")
    return struct.pack(">H", len(data)) + data
