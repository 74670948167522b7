"""Avro's binary encoding of rows, as Spark writes them: the counterpart of ``avro``.

Keys are found by their bytes, so a record must be identical to the one that Spark writes. Only the order of the entries
of a map is free, and maps cannot be keys.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headwater.core.varint import zigzag
from headwater.statefiles.avro import FLOATS, WHOLE_NUMBERS, decimal_bytes
from headwater.statefiles.buffers import as_mask, as_numbers
from headwater.statefiles.rowencoder import absent_values
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Map, SqlType, Struct

_NULL, _PRESENT = b"\0", b"\2"
_END = b"\0"
_WIDE_BYTES = 16


def encode_records(kind: Struct, columns: Sequence[pa.Array], count: int) -> list[bytes]:
    """Return records whose fields are given as columns, which have the Arrow types of ``arrow_type``."""
    parts = [_nullable(field.type, column) for field, column in zip(kind.fields, columns, strict=True)]
    return [b"".join(row) for row in zip(*parts, strict=True)] if parts else [b""] * count


def encode_byte_strings(columns: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return records of byte strings that are never null: what ``byte_strings`` of ``avro`` finds."""
    parts = [[_PRESENT + zigzag(len(text)) + text for text in column] for column in columns]
    return [b"".join(row) for row in zip(*parts, strict=True)]


def _nullable(kind: SqlType, column: pa.Array) -> list[bytes]:
    """Return values that are a union of null and their type."""
    if kind == Atomic("void"):
        return [b""] * len(column)
    absent = absent_values(column)
    if not absent.any():
        return [_PRESENT + value for value in _values(kind, column)]
    values = iter(_values(kind, column.filter(column.is_valid())))
    return [_NULL if missing else _PRESENT + next(values) for missing in absent.tolist()]


def _values(kind: SqlType, column: pa.Array) -> list[bytes]:
    """Return the values of a column without nulls."""
    match kind:
        case Atomic("boolean"):
            return [b"\1" if value else b"\0" for value in as_mask(column).tolist()]
        case Atomic(name) if name in WHOLE_NUMBERS:
            return [zigzag(value) for value in as_numbers(column, WHOLE_NUMBERS[name]).tolist()]
        case Atomic(name) if name in FLOATS:
            form = np.dtype(FLOATS[name])
            return _slices(as_numbers(column, FLOATS[name]).tobytes(), form.itemsize)
        case Atomic("string") | Atomic("binary"):
            return [zigzag(len(text)) + text for text in column.cast(pa.binary()).to_pylist()]
        case Decimal():
            raw = np.frombuffer(column.buffers()[1], np.uint8, len(column) * _WIDE_BYTES, column.offset * _WIDE_BYTES)
            # The bytes that the precision cannot need only repeat the sign.
            digits = raw.reshape(-1, _WIDE_BYTES)[:, ::-1][:, _WIDE_BYTES - decimal_bytes(kind) :]
            return _slices(digits.tobytes(), decimal_bytes(kind))
        case Struct():
            return encode_records(kind, column.flatten(), len(column))
        case Array(element):
            return _blocks([element], column, [column.values])
        case Map(key, value):
            return _blocks([key, value], column, [column.keys, column.items])
        case _:
            raise ValueError(f"values of type {kind} cannot be written in Avro")


def _blocks(kinds: list[SqlType], column: pa.Array, children: list[pa.Array]) -> list[bytes]:
    """Return arrays or maps: the number of elements, the elements, and 0."""
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4).tolist()
    parts = [
        list(_elements(kind, child.slice(offsets[0], offsets[-1] - offsets[0])))
        for kind, child in zip(kinds, children, strict=True)
    ]
    elements = [b"".join(one) for one in zip(*parts, strict=True)]
    found = []
    for start, end in itertools.pairwise(offsets):
        inside = elements[start - offsets[0] : end - offsets[0]]
        found.append((zigzag(len(inside)) if inside else b"") + b"".join(inside) + _END)
    return found


def _elements(kind: SqlType, column: pa.Array) -> Iterator[bytes]:
    if isinstance(kind, Struct | Array | Map):
        yield from _nullable(kind, column)
        return
    if column.null_count:
        raise ValueError("Spark's Avro encoding has no null elements of arrays and maps")
    yield from _values(kind, column)


def _slices(data: bytes, width: int) -> list[bytes]:
    return [data[at : at + width] for at in range(0, len(data), width)]


def with_schema_id(records: list[bytes], schema_id: int) -> list[bytes]:
    """Return records after the id of their schema (int16 little-endian)."""
    prefix = struct.pack("<h", schema_id)
    return [prefix + record for record in records]
