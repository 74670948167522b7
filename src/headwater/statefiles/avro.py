"""Avro's binary encoding, decoded column by column: every row has a cursor, and all cursors advance together.

In the encoding that Spark writes, fields, structs, arrays and maps are unions of null and their type, while simple
elements of arrays and values of maps are not. The keys of maps are strings. A decimal has as many bytes as its
precision can need.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headwater.statefiles import buffers
from headwater.statefiles.buffers import ByteSpace, Ints, Mask
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Map, SqlType, Struct, arrow_type
from headwater.statefiles.sst_file import varints
from headwater.statefiles.unsaferow import struct_of, wide_decimal

WHOLE_NUMBERS = {
    "byte": "i1",
    "short": "<i2",
    "integer": "<i4",
    "long": "<i8",
    "date": "<i4",
    "timestamp": "<i8",
    "timestamp_ntz": "<i8",
}
FLOATS = {"float": "<f4", "double": "<f8"}


def decode_records(kind: Struct, space: ByteSpace, start: Ints, end: Ints) -> list[pa.Array]:
    """Return one array per field for the records that begin at these positions."""
    cursor = _Cursor(space, start.copy(), None)
    columns = [cursor.nullable(field.type) for field in kind.fields]
    if (cursor.at > end).any():
        raise ValueError("a record extends beyond its value")
    return columns


def decode_evolved(
    kind: Struct, written: Mapping[int, Struct], ids: Ints, space: ByteSpace, start: Ints, end: Ints
) -> list[pa.Array]:
    """Return one array per field for records of several schemas: fields match by name, missing ones are null."""
    parts, order = [], []
    for schema_id in np.unique(ids).tolist():
        chosen = np.flatnonzero(ids == schema_id)
        writer = written.get(schema_id, kind)
        columns = dict(zip(writer.names, decode_records(writer, space, start[chosen], end[chosen]), strict=True))
        fields = [
            columns[field.name].cast(arrow_type(field.type))
            if field.name in columns
            else pa.nulls(len(chosen), arrow_type(field.type))
            for field in kind.fields
        ]
        parts.append(fields)
        order.append(chosen)
    back = buffers.numbers(np.argsort(np.concatenate(order)))
    return [pa.concat_arrays([part[number] for part in parts]).take(back) for number in range(len(kind.fields))]


def byte_strings(count: int, space: ByteSpace, start: Ints, end: Ints) -> list[Ints]:
    """Return where each of ``count`` consecutive byte strings begins. Each is a union with null and never null."""
    cursor = _Cursor(space, start.copy(), None)
    found = []
    for _ in range(count):
        cursor.number()
        length = cursor.number()
        found.append(cursor.at.copy())
        cursor.at += length
    if (cursor.at > end).any():
        raise ValueError("a key extends beyond its bytes")
    return found


def decimal_bytes(kind: Decimal) -> int:
    """Return how many bytes the precision of a decimal can need."""
    return next(size for size in range(1, 17) if 10**kind.precision <= 2 ** (8 * size - 1))


class _Cursor:
    """A position in each of many records. Rows that are not ``active`` do not advance and read as null."""

    def __init__(self, space: ByteSpace, at: Ints, active: Mask | None) -> None:
        self.space, self.at, self.active = space, at, active

    def number(self) -> Ints:
        """Read a zigzag-encoded number in each active row; the others read as 0."""
        raw, size = varints(self.space, self.at)
        value = ((raw.view(np.uint64) >> np.uint64(1)).view(np.int64)) ^ -(raw & 1)
        if self.active is not None:
            value, size = np.where(self.active, value, 0), np.where(self.active, size, 0)
        self.at = self.at + size
        return value

    def nullable(self, kind: SqlType) -> pa.Array:
        """Read a value that is a union of null and its type."""
        if kind == Atomic("void"):
            return pa.nulls(len(self.at))
        present = self.number() == 1
        if self.active is not None:
            present &= self.active
        outer = self.active
        self.active = None if bool(present.all()) else present
        try:
            return self.value(kind)
        finally:
            self.active = outer

    def value(self, kind: SqlType) -> pa.Array:
        """Read a value of a type."""
        match kind:
            case Atomic("boolean"):
                return buffers.fixed(pa.bool_(), self._step(1, "u1") != 0, self.active)
            case Atomic(name) if name in WHOLE_NUMBERS:
                return buffers.fixed(arrow_type(kind), self.number().astype(WHOLE_NUMBERS[name]), self.active)
            case Atomic(name) if name in FLOATS:
                form = FLOATS[name]
                return buffers.fixed(arrow_type(kind), self._step(np.dtype(form).itemsize, form), self.active)
            case Atomic("string") | Atomic("binary"):
                start, length = self._bytes()
                return buffers.binary(arrow_type(kind), self.space, start, length, self.active)
            case Decimal():
                return self._decimal(kind)
            case Struct(fields):
                active = self.active
                columns = [self.nullable(field.type) for field in fields]
                return struct_of(kind, columns, len(self.at), active)
            case Array(element):
                return self._blocks(kind, [element])
            case Map(key, value):
                return self._blocks(kind, [key, value])
            case _:
                raise ValueError(f"no Avro encoding is known for type {kind}")

    def _step(self, width: int, form: str) -> np.ndarray:
        values = self.space.gather(form, self.at)
        self.at = self.at + (width if self.active is None else np.where(self.active, width, 0))
        return values

    def _bytes(self) -> tuple[Ints, Ints]:
        length = self.number()
        start = self.at
        if len(length) and (int(length.min()) < 0 or int((start + length).max()) > self.space.size):
            raise ValueError("a string of impossible length")
        self.at = self.at + length
        return start, length

    def _decimal(self, kind: Decimal) -> pa.Array:
        start, length = self.at, np.full(len(self.at), decimal_bytes(kind), np.int64)
        self.at = self.at + (length if self.active is None else np.where(self.active, length, 0))
        return wide_decimal(kind, self.space, start, length, self.active)

    def _blocks(self, kind: Array | Map, parts: list[SqlType]) -> pa.Array:
        """Read blocks of elements. Each follows its count; 0 ends them, and a negative count is followed by a size."""
        count = len(self.at)
        outer = self.active
        going = np.ones(count, bool) if outer is None else outer.copy()
        left = np.zeros(count, np.int64)
        pieces: list[list[pa.Array]] = [[] for _ in parts]
        owners: list[Ints] = []
        while True:
            self._next_block(going, left)
            if not going.any():
                break
            owners.append(np.flatnonzero(going))
            part = _Cursor(self.space, self.at[going], None)
            for piece, element in zip(pieces, parts, strict=True):
                in_union = isinstance(element, Struct | Array | Map)
                piece.append(part.nullable(element) if in_union else part.value(element))
            self.at[going] = part.at
            left[going] -= 1
        self.active = outer
        return _assemble(kind, parts, pieces, owners, count, outer)

    def _next_block(self, going: Mask, left: Ints) -> None:
        """Read the next count in rows whose block is used up; rows that read 0 are done."""
        at_count = going & (left == 0)
        while at_count.any():
            reader = _Cursor(self.space, self.at[at_count], None)
            counts = reader.number()
            if (counts < 0).any():
                sized = _Cursor(self.space, reader.at, counts < 0)
                sized.number()
                reader.at = sized.at
            self.at[at_count] = reader.at
            left[at_count] = np.abs(counts)
            going[at_count] = counts != 0
            at_count = going & (left == 0)


def _assemble(
    kind: Array | Map,
    parts: list[SqlType],
    pieces: list[list[pa.Array]],
    owners: list[Ints],
    count: int,
    valid: Mask | None,
) -> pa.Array:
    owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    order = buffers.numbers(np.argsort(owner, kind="stable"))
    columns = [
        (pa.concat_arrays(piece) if piece else pa.nulls(0, arrow_type(part))).take(order)
        for piece, part in zip(pieces, parts, strict=True)
    ]
    offsets = buffers.offsets_of(np.bincount(owner, minlength=count))
    arrow = arrow_type(kind)
    if isinstance(kind, Map):
        columns = [pa.StructArray.from_arrays(columns, fields=[arrow.key_field, arrow.item_field])]
    return buffers.nested(arrow, count, offsets, columns, valid)
