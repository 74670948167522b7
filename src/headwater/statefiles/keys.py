"""Keys as RocksDB orders them, back to columns.

``whole``: the row. ``prefix``: int32 little-endian length, the row of the first columns, the row of the rest. ``range``:
the same with the first columns as a row of byte strings, each a marker (0 negative, 1 positive, 2 null) and a
big-endian number, negative floats with every bit flipped. ``timestamp``: eight big-endian bytes, sign flipped, before
or after the row. Every row follows a version byte, which is 0.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.statefiles import arrowbuild
from headwater.statefiles.bytespace import ByteSpace, Ints, Mask
from headwater.statefiles.rowcodec import RowCodec
from headwater.statefiles.schemafile import KeyEncoding
from headwater.statefiles.sqltypes import Atomic, SqlType, Struct, arrow_type
from headwater.statefiles.unsaferow import struct_of

_RANGE_TYPES = {
    "byte": ">i1",
    "short": ">i2",
    "integer": ">i4",
    "long": ">i8",
    "float": ">f4",
    "double": ">f8",
    "boolean": ">i1",
}
_NEGATIVE, _NULL = 0, 2
_TIMESTAMP_BYTES = 8


def decode_keys(
    kind: Struct, encoding: KeyEncoding, codec: RowCodec, space: ByteSpace, start: Ints, length: Ints
) -> pa.StructArray:
    match encoding.layout:
        case "whole":
            return codec.rows(kind, space, start, length)
        case "prefix":
            return _prefixed(kind, encoding, codec, space, start, length)
        case "range":
            return _ranged(kind, encoding, codec, space, start, length)
        case "timestamp-first":
            columns = codec.fields(kind.slice(0, -1), space, start + _TIMESTAMP_BYTES, length - _TIMESTAMP_BYTES)
            return struct_of(kind, [*columns, _timestamp(space, start)], len(start), None)
        case "timestamp-last":
            columns = codec.fields(kind.slice(0, -1), space, start, length - _TIMESTAMP_BYTES)
            return struct_of(kind, [*columns, _timestamp(space, start + length - _TIMESTAMP_BYTES)], len(start), None)


def _prefixed(
    kind: Struct, encoding: KeyEncoding, codec: RowCodec, space: ByteSpace, start: Ints, length: Ints
) -> pa.StructArray:
    size = _prefix_size(space, start, length)
    split = len(encoding.columns)
    first = codec.fields(kind.slice(0, split), space, start + 4, size, schema_id=False)
    rest = codec.fields(kind.slice(split), space, start + 4 + size, length - 4 - size)
    return struct_of(kind, [*first, *rest], len(start), None)


def _ranged(
    kind: Struct, encoding: KeyEncoding, codec: RowCodec, space: ByteSpace, start: Ints, length: Ints
) -> pa.StructArray:
    size = _prefix_size(space, start, length)
    first = [kind.fields[column] for column in encoding.columns]
    others = [column for column in range(len(kind.fields)) if column not in encoding.columns]
    markers, numbers = codec.range_columns(len(first), space, start + 4, size)
    columns = {
        column: _range_number(field.type, space, marker, number)
        for column, field, marker, number in zip(encoding.columns, first, markers, numbers, strict=True)
    }
    if others:
        rest = Struct(tuple(kind.fields[column] for column in others))
        columns |= zip(others, codec.fields(rest, space, start + 4 + size, length - 4 - size), strict=True)
    return struct_of(kind, [columns[number] for number in range(len(kind.fields))], len(start), None)


def _prefix_size(space: ByteSpace, start: Ints, length: Ints) -> Ints:
    size: Ints = space.gather("<i4", start).astype(np.int64)
    if len(size) and (bool((size < 0).any()) or bool((size + 4 > length).any())):
        raise ValueError("a key whose first part is longer than itself")
    return size


def _range_number(kind: SqlType, space: ByteSpace, marker_at: Ints, number_at: Ints) -> pa.Array:
    if not isinstance(kind, Atomic) or kind.name not in _RANGE_TYPES:
        raise ValueError(f"a key ordered by a column of type {kind}")
    marker = space.gather("u1", marker_at)
    form = _RANGE_TYPES[kind.name]
    if kind.name in ("float", "double"):
        bits = space.gather(form.replace("f", "u"), number_at)
        bits = np.where(marker == _NEGATIVE, ~bits, bits)
        values = bits.astype(form.replace(">f", "<u")).view(form.replace(">", "<"))
    else:
        values = space.gather(form, number_at).astype(form.replace(">", "<"))
    valid: Mask | None = marker != _NULL
    return arrowbuild.fixed(arrow_type(kind), values != 0 if kind.name == "boolean" else values, valid)


def _timestamp(space: ByteSpace, at: Ints) -> pa.Array:
    flipped = space.gather(">u8", at) ^ np.uint64(1 << 63)
    return arrowbuild.fixed(pa.int64(), flipped.astype("<u8").view("<i8"), None)
