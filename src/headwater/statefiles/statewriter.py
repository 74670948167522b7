"""State files as Spark writes them: operations on keys as a delta, a snapshot or a changelog, compressed."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Literal

from headwater.statefiles.codecs import compress
from headwater.statefiles.records import DELETE, MERGE, PUT

Operation = tuple[int, bytes, bytes]
"""A put, delete or merge (see ``records``), its key with the id of the column family, and its value."""

Lineage = Sequence[tuple[int, str]]
_END = struct.pack(">i", -1)


def put(key: bytes, value: bytes) -> Operation:
    return (PUT, key, value)


def delete(key: bytes) -> Operation:
    return (DELETE, key, b"")


def plain_file(operations: Iterable[Operation], codec: str) -> bytes:
    """Return a delta or snapshot of an HDFS-backed store. A snapshot contains only puts."""
    return compress(_plain(operations), codec)


def changelog_file(
    operations: Iterable[Operation], codec: str, *, families: bool, lineage: Lineage | None = None
) -> bytes:
    """Return a changelog: of version 1, or 2 with column families; with a lineage (format 2), of version 3 or 4."""
    version: Literal[1, 2, 3, 4] = 4 if families else 3
    if lineage is None:
        version = 2 if families else 1
    header = b"" if version == 1 else _utf(f"v{version}")
    if lineage is not None:
        items = [{"version": number, "checkpointUniqueId": unique_id} for number, unique_id in lineage]
        header += _utf(json.dumps(items, separators=(",", ":")))
    return compress(header + (_typed(operations) if families else _plain(operations)), codec)


def _plain(operations: Iterable[Operation]) -> bytes:
    parts: list[bytes] = []
    for kind, key, value in operations:
        if kind == MERGE:
            raise ValueError("a merge can only be written with column families")
        parts += (_size(key), key, _END) if kind == DELETE else (_size(key), key, _size(value), value)
    return b"".join((*parts, _END))


def _typed(operations: Iterable[Operation]) -> bytes:
    parts: list[bytes] = []
    for kind, key, value in operations:
        parts += (bytes((kind,)), _size(key), key)
        parts += (_END,) if kind == DELETE else (_size(value), value)
    return b"".join((*parts, b"\0"))


def _size(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big")


def _utf(text: str) -> bytes:
    """Return a string as Java's ``writeUTF`` does. The texts here are ASCII."""
    data = text.encode("ascii")
    if len(data) >= 1 << 16:
        raise ValueError("a lineage of more than 64 kB")
    return struct.pack(">H", len(data)) + data
