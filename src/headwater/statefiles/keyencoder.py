"""Stored keys and values as bytes: the layouts of ``rowcodec``, in the other direction; and the partition of a key."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.statefiles.avro_encoder import encode_byte_strings, encode_records, with_schema_id
from headwater.statefiles.buffers import Ints, as_mask, as_numbers
from headwater.statefiles.murmur3 import partition_of
from headwater.statefiles.rowcodec import RANGE_TYPES
from headwater.statefiles.rowencoder import encode_rows, encode_structs, normalized
from headwater.statefiles.schemafile import FamilySchema, KeyEncoding
from headwater.statefiles.sqltypes import Atomic, Field, SqlType, Struct
from headwater.statefiles.stores import JOIN_INDEX, StateTarget, StoreSettings

_VERSION = b"\0"
_NEGATIVE, _POSITIVE, _NULL = 0, 1, 2
_SIGN = 1 << 63


@dataclass(frozen=True)
class RowEncoder:
    """Encodes the rows of a target. ``hdfs`` is whether the store is HDFS-backed."""

    target: StateTarget
    settings: StoreSettings
    hdfs: bool

    @property
    def schema(self) -> FamilySchema:
        return self.target.schema

    def keys(self, keys: pa.StructArray) -> list[bytes]:
        """Return stored keys, without the id of their column family."""
        kind = self.schema.key
        keys = normalized(kind, keys)
        encoding = KeyEncoding("row") if self.hdfs else self.schema.encoding
        match encoding.layout:
            case "row":
                return self._rows(kind, keys.flatten(), len(keys))
            case "prefix":
                split = len(encoding.columns)
                columns = keys.flatten()
                first = self._rows(kind.slice(0, split), columns[:split], len(keys), schema_id=False)
                rest = self._rows(kind.slice(split), columns[split:], len(keys))
                return [struct.pack("<i", len(one)) + one + other for one, other in zip(first, rest, strict=True)]
            case "range":
                return self._ranged(kind, encoding, keys)
            case "timestamp-first" | "timestamp-last" as layout:
                *columns, times = keys.flatten()
                rows = self._rows(kind.slice(0, -1), columns, len(keys))
                stamps = [struct.pack(">Q", (time + _SIGN) % 2**64) for time in as_numbers(times, "<i8").tolist()]
                pairs = (
                    zip(stamps, rows, strict=True) if layout == "timestamp-first" else zip(rows, stamps, strict=True)
                )
                return [one + other for one, other in pairs]

    def values(self, values: pa.StructArray) -> list[bytes]:
        """Return stored values of a target that is not a list."""
        if self._is_avro:
            records = encode_records(self.schema.value, values.flatten(), len(values))
            return self._versioned(with_schema_id(records, self.schema.value_schema_id))
        return self._versioned(encode_structs(self.schema.value, values))

    def lists(self, lists: pa.ListArray) -> list[bytes]:
        """Return stored values of a list: its elements, each after its length."""
        sized = [struct.pack("<i", len(element)) + element for element in self.values(lists.flatten())]
        delimiter = b"," if self.settings.list_delimiter else b""
        found, at = [], 0
        for size in np.diff(as_numbers(lists.offsets, "<i4")).tolist():
            found.append(delimiter.join(sized[at : at + size]))
            at += size
        return found

    def partitions(self, keys: pa.StructArray, partitions: int) -> Ints:
        """Return the partition of each key: Spark hashes the columns by which it distributes the rows."""
        kind, columns = grouping_columns(self.target, keys)
        if not kind.fields:
            return np.zeros(len(keys), np.int64)
        return partition_of([field.type for field in kind.fields], columns, len(keys), partitions)

    @property
    def _is_avro(self) -> bool:
        return self.settings.avro and self.target.family is not None

    def _rows(self, kind: Struct, columns: list[pa.Array], count: int, *, schema_id: bool = True) -> list[bytes]:
        """Return keys, or parts of keys. In Avro only one part of a key has the id of its schema."""
        if not self._is_avro:
            return self._versioned(encode_rows(kind, columns, count))
        records = encode_records(kind, columns, count)
        return self._versioned(with_schema_id(records, self.schema.key_schema_id) if schema_id else records)

    def _versioned(self, rows: list[bytes]) -> list[bytes]:
        return rows if self.hdfs else [_VERSION + row for row in rows]

    def _ranged(self, kind: Struct, encoding: KeyEncoding, keys: pa.StructArray) -> list[bytes]:
        columns = keys.flatten()
        ordered = [_range_bytes(kind.fields[number].type, columns[number]) for number in encoding.columns]
        if self._is_avro:  # the marker and the number are strings of their own
            texts = [column.to_pylist() for column in ordered]
            parts = [[text[part] for text in column] for column in texts for part in (slice(1), slice(1, None))]
            first = self._versioned(encode_byte_strings(parts))
        else:
            form = Struct(tuple(Field(str(number), Atomic("binary")) for number in encoding.columns))
            first = self._versioned(encode_rows(form, ordered, len(keys)))
        others = [number for number in range(len(kind.fields)) if number not in encoding.columns]
        rest = [b""] * len(keys)
        if others:
            other_kind = Struct(tuple(kind.fields[number] for number in others))
            rest = self._rows(other_kind, [columns[number] for number in others], len(keys))
        return [struct.pack("<i", len(one)) + one + other for one, other in zip(first, rest, strict=True)]


def _range_bytes(kind: SqlType, column: pa.Array) -> pa.Array:
    """Return numbers as a marker and big-endian bytes that sort like the numbers."""
    if not isinstance(kind, Atomic) or kind.name not in RANGE_TYPES:
        raise ValueError(f"a range key with a column of type {kind} cannot be written")
    form = RANGE_TYPES[kind.name].replace(">", "<")
    values = as_mask(column).astype("i1") if kind.name == "boolean" else as_numbers(column, form)
    width = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"<u{width}")
    negative = np.signbit(values) if values.dtype.kind == "f" else values < 0
    if values.dtype.kind == "f":
        bits = np.where(negative, ~bits, bits)
    absent = ~as_mask(column.is_valid())
    out = np.zeros((len(column), width + 1), np.uint8)
    out[:, 0] = np.where(absent, _NULL, np.where(negative, _NEGATIVE, _POSITIVE))
    out[:, 1:] = np.where(absent[:, None], 0, bits.astype(f">u{width}").view(np.uint8).reshape(-1, width))
    offsets = np.arange(len(column) + 1, dtype=np.int32) * (width + 1)
    return pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def grouping_columns(target: StateTarget, keys: pa.StructArray) -> tuple[Struct, list[pa.Array]]:
    """Return the columns of keys by which Spark distributes the rows over partitions, and their types."""
    kind = normalized_key(target)
    columns = normalized(target.schema.key, keys).flatten()
    for number, field in enumerate(target.schema.key.fields):
        if target.var is not None and isinstance(field.type, Struct) and field.name in ("key", "elementKey"):
            parts = columns[number].flatten()
            first = field.type.fields[0].type if field.type.names == ["key", "userKey"] else None
            if isinstance(first, Struct):  # the index by which the entries of a map expire
                return first, parts[0].flatten()
            return field.type, parts
    return kind, columns[: len(kind.fields)]


def partition_of_row(target: StateTarget, key: pa.StructArray, partitions: int) -> int | None:
    """Return the partition of one stored key; None for a side of a join, and if its type has no known hash."""
    kind, columns = grouping_columns(target, key)
    if target.kind == "side" or not kind.fields:
        return None
    try:
        return int(partition_of([field.type for field in kind.fields], columns, len(key), partitions)[0])
    except ValueError:
        return None


def normalized_key(target: StateTarget) -> Struct:
    """Return the key without what an operator appends to the columns by which it distributes rows."""
    key = target.schema.key
    if target.schema.encoding.layout == "prefix" and target.var is None:
        return key.slice(0, len(target.schema.encoding.columns))
    if (target.store.endswith(JOIN_INDEX) and key.names[-1:] == ["index"]) or target.schema.encoding.layout in (
        "timestamp-first",
        "timestamp-last",
    ):
        return key.slice(0, -1)
    return key


def storage_target(target: StateTarget) -> StateTarget:
    """Return a target whose variants are read and written as bytes, so that they stay exactly as they are."""
    if '"variant"' not in target.schema.key_json + target.schema.value_json:
        return target
    schema = replace(
        target.schema,
        key_json=target.schema.key_json.replace('"variant"', '"binary"'),
        value_json=target.schema.value_json.replace('"variant"', '"binary"'),
    )
    return replace(target, schema=schema)
