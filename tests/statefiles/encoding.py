"""A simple encoder of rows, records and compressed streams in Spark's formats, to test the readers against."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import cramjam
import xxhash

from headwater.statefiles.sqltypes import Array, Atomic, Field, Map, SqlType, Struct

LONG, INT, TEXT, FLAG, REAL = map(Atomic, ("long", "integer", "string", "boolean", "double"))
_FORMS = {"long": "<q", "integer": "<i", "boolean": "<B", "double": "<d", "byte": "<b", "short": "<h"}


def struct_type(**fields: SqlType) -> Struct:
    return Struct(tuple(Field(name, kind) for name, kind in fields.items()))


def unsafe_row(kind: Struct, values: Sequence[Any]) -> bytes:
    """Return one encoded UnsafeRow."""
    width = (len(kind.fields) + 63) // 64 * 8
    bitset, slots, tail = 0, b"", b""
    begin = width + 8 * len(kind.fields)
    for number, (field, value) in enumerate(zip(kind.fields, values, strict=True)):
        if value is None:
            bitset |= 1 << number
            slots += bytes(8)
        elif isinstance(field.type, Atomic) and field.type.name in _FORMS:
            slots += struct.pack(_FORMS[field.type.name], value).ljust(8, b"\0")
        else:
            data = _variable(field.type, value)
            slots += struct.pack("<q", (begin + len(tail)) << 32 | len(data))
            tail += data + bytes(-len(data) % 8)
    return bitset.to_bytes(width, "little") + slots + tail


def _variable(kind: SqlType, value: Any) -> bytes:
    match kind:
        case Atomic("string"):
            return value.encode()
        case Struct():
            return unsafe_row(kind, value)
        case Array(element):
            return _array(element, value)
        case Map(key, item):
            keys = _array(key, list(value))
            return struct.pack("<q", len(keys)) + keys + _array(item, list(value.values()))
        case _:
            raise AssertionError(kind)


def _array(kind: SqlType, values: Sequence[Any]) -> bytes:
    count = len(values)
    bitset = sum(1 << number for number, value in enumerate(values) if value is None)
    header = struct.pack("<q", count) + bitset.to_bytes((count + 63) // 64 * 8, "little")
    fixed = isinstance(kind, Atomic) and kind.name in _FORMS
    form = _FORMS[kind.name] if isinstance(kind, Atomic) and fixed else "<q"
    size = struct.calcsize(form) * count
    begin = len(header) + size + (-size % 8)
    elements, tail = b"", b""
    for value in values:
        if value is None:
            elements += bytes(struct.calcsize(form))
        elif fixed:
            elements += struct.pack(form, value)
        else:
            data = _variable(kind, value)
            elements += struct.pack("<q", (begin + len(tail)) << 32 | len(data))
            tail += data + bytes(-len(data) % 8)
    return header + elements + bytes(-size % 8) + tail


def lz4_stream(data: bytes, block: int) -> bytes:
    """Return lz4-java's stream in blocks of a given size."""
    out = b""
    for at in range(0, len(data), block):
        part = data[at : at + block]
        packed = bytes(cramjam.lz4.compress_block(part, store_size=False))
        method, stored = (0x20, packed) if len(packed) < len(part) else (0x10, part)
        out += (
            _lz4_header(method, len(stored), len(part), xxhash.xxh32_intdigest(part, 0x9747B28C) & 0x0FFFFFFF) + stored
        )
    return out + _lz4_header(0x10, 0, 0, 0)


def _lz4_header(method: int, packed: int, length: int, checksum: int) -> bytes:
    return b"LZ4Block" + struct.pack("<BiiI", method | 5, packed, length, checksum)


Operation = tuple[str, bytes, bytes]


def plain_records(operations: Sequence[Operation]) -> bytes:
    """Return records as in deltas, snapshots and changelogs of version 1."""
    out = [
        _sized(key) + (struct.pack(">i", -1) if name == "delete" else _sized(value)) for name, key, value in operations
    ]
    return b"".join(out) + struct.pack(">i", -1)


def typed_records(operations: Sequence[Operation]) -> bytes:
    """Return a changelog of version 2."""
    types = {"put": 1, "delete": 0x10, "merge": 0x11, "delete range": 0x20}
    out = [
        bytes([types[name]]) + _sized(key) + (struct.pack(">i", -1) if name == "delete" else _sized(value))
        for name, key, value in operations
    ]
    return b"\0\x02v2" + b"".join(out) + b"\0"


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
