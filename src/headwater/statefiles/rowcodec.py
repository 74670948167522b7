"""Row codecs: UnsafeRow as HDFS-backed stores and RocksDB write it, or Avro; and the layouts of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from headwater.statefiles import buffers
from headwater.statefiles.buffers import ByteSpace, Ints, Mask
from headwater.statefiles.schemafile import KeyEncoding
from headwater.statefiles.sqltypes import Atomic, SqlType, Struct, arrow_type
from headwater.statefiles.unsaferow import bitset_bytes, decode_fields, struct_of

RANGE_TYPES = {
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


class RowCodec(Protocol):
    """Decodes rows of any schema. ``schema_id`` is False for the only part of a key that is written without one."""

    def rows(self, kind: Struct, space: ByteSpace, start: Ints, length: Ints) -> pa.StructArray: ...

    def fields(
        self, kind: Struct, space: ByteSpace, start: Ints, length: Ints, *, schema_id: bool = True
    ) -> list[pa.Array]: ...

    def range_columns(self, count: int, space: ByteSpace, start: Ints, length: Ints) -> tuple[list[Ints], list[Ints]]:
        """Return where the marker and the number of each ordering column of a range key are."""


@dataclass(frozen=True)
class UnsafeRows:
    """UnsafeRow. With ``version_byte`` each row follows a zero byte, as in RocksDB; HDFS-backed stores have none."""

    version_byte: bool

    def rows(self, kind: Struct, space: ByteSpace, start: Ints, length: Ints) -> pa.StructArray:
        return struct_of(kind, self.fields(kind, space, start, length), len(start), None)

    def fields(
        self,
        kind: Struct,
        space: ByteSpace,
        start: Ints,
        length: Ints,  # noqa: ARG002  a row locates its own parts
        *,
        schema_id: bool = True,  # noqa: ARG002  there is none
    ) -> list[pa.Array]:
        return decode_fields(kind, space, self._row_start(space, start), None)

    def range_columns(
        self,
        count: int,
        space: ByteSpace,
        start: Ints,
        length: Ints,  # noqa: ARG002
    ) -> tuple[list[Ints], list[Ints]]:
        row = self._row_start(space, start)
        slots = [row + bitset_bytes(count) + 8 * number for number in range(count)]
        markers = [row + (space.gather("<i8", slot) >> 32) for slot in slots]
        return markers, [marker + 1 for marker in markers]

    def _row_start(self, space: ByteSpace, start: Ints) -> Ints:
        if not self.version_byte:
            return start
        versions = space.gather("u1", start)
        if versions.any():
            raise ValueError(f"a row of unsupported encoding version {int(versions.max())}")
        return start + 1


@dataclass(frozen=True)
class AvroRows:
    """Avro rows: a version byte, the id of the writer's schema (int16 little-endian), and Avro's binary encoding.

    ``written`` maps schema ids to schemas, for values whose schema has evolved.
    """

    written: Mapping[int, Struct] = field(default_factory=dict)

    def rows(self, kind: Struct, space: ByteSpace, start: Ints, length: Ints) -> pa.StructArray:
        return struct_of(kind, self.fields(kind, space, start, length), len(start), None)

    def fields(
        self, kind: Struct, space: ByteSpace, start: Ints, length: Ints, *, schema_id: bool = True
    ) -> list[pa.Array]:
        from headwater.statefiles.avro import decode_evolved, decode_records  # noqa: PLC0415  few stores use it

        if not schema_id or not self.written:
            return decode_records(kind, space, start + (3 if schema_id else 1), start + length)
        ids = space.gather("<i2", start + 1)
        used = np.unique(ids).tolist()
        if all(self.written.get(used_id, kind) == kind for used_id in used):
            return decode_records(kind, space, start + 3, start + length)
        return decode_evolved(kind, self.written, ids, space, start + 3, start + length)

    def range_columns(self, count: int, space: ByteSpace, start: Ints, length: Ints) -> tuple[list[Ints], list[Ints]]:
        from headwater.statefiles.avro import byte_strings  # noqa: PLC0415

        at = byte_strings(2 * count, space, start + 1, start + length)
        return at[0::2], at[1::2]


def decode_keys(
    kind: Struct, encoding: KeyEncoding, codec: RowCodec, space: ByteSpace, start: Ints, length: Ints
) -> pa.StructArray:
    """Return the keys at these positions, decoded according to their layout."""
    match encoding.layout:
        case "row":
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
        raise ValueError("a key whose prefix is longer than the key")
    return size


def _range_number(kind: SqlType, space: ByteSpace, marker_at: Ints, number_at: Ints) -> pa.Array:
    if not isinstance(kind, Atomic) or kind.name not in RANGE_TYPES:
        raise ValueError(f"a range key with a column of unsupported type {kind}")
    marker = space.gather("u1", marker_at)
    form = RANGE_TYPES[kind.name]
    if kind.name in ("float", "double"):
        bits = space.gather(form.replace("f", "u"), number_at)
        bits = np.where(marker == _NEGATIVE, ~bits, bits)
        values = bits.astype(form.replace(">f", "<u")).view(form.replace(">", "<"))
    else:
        values = space.gather(form, number_at).astype(form.replace(">", "<"))
    valid: Mask | None = marker != _NULL
    return buffers.fixed(arrow_type(kind), values != 0 if kind.name == "boolean" else values, valid)


def _timestamp(space: ByteSpace, at: Ints) -> pa.Array:
    flipped = space.gather(">u8", at) ^ np.uint64(1 << 63)
    return buffers.fixed(pa.int64(), flipped.astype("<u8").view("<i8"), None)
