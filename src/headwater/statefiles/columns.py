"""Decode stored rows into the columns that Spark's ``statestore`` source has for each kind of state."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.statefiles.buffers import ByteSpace, Ints, binary, numbers, offsets_of, one_array
from headwater.statefiles.list_state import list_elements
from headwater.statefiles.records import Records
from headwater.statefiles.rowcodec import AvroRows, RowCodec, UnsafeRows, decode_keys
from headwater.statefiles.schemafile import KeyEncoding
from headwater.statefiles.sqltypes import Array, Atomic, Field, SqlType, Struct, distinct
from headwater.statefiles.stores import StateTarget, StoreSettings
from headwater.statefiles.unsaferow import check_rows, struct_of

PARTITION = "partition_id"


@dataclass(frozen=True)
class RowDecoder:
    """Decodes the stored rows of a target. ``hdfs`` is whether the store is HDFS-backed."""

    target: StateTarget
    settings: StoreSettings
    hdfs: bool

    def table(self, rows: Records, partitions: np.ndarray) -> pa.Table:
        """Return the rows as a table: ``key``, the columns for the kind of state, ``partition_id``."""
        start, length = rows.value_start, rows.value_length
        if self.target.is_list:
            owner, start, length = self._list_elements(rows)
            rows, partitions = rows.take(owner), partitions[owner]
        columns = self._named(self.keys(rows), lambda: self._values(rows, start, length))
        return pa.table({**columns, PARTITION: numbers(partitions)})

    def list_table(self, rows: Records, partitions: np.ndarray) -> tuple[Struct, pa.Table]:
        """Return a table with one row per key, and its types. ``rows`` has to come from ``joined_lists``."""
        joined = replace(self, settings=replace(self.settings, list_delimiter=0, row_checksums=False))
        flat = joined.table(rows, partitions).combine_chunks()
        owner, _, _ = joined._list_elements(rows)
        offsets = offsets_of(np.bincount(owner, minlength=len(rows)))
        elements = one_array(flat[flat.column_names[1]])
        values = pa.ListArray.from_arrays(numbers(offsets.astype(np.int32)), elements)
        key, element, partition = column_types(self.target).fields
        types = Struct((key, Field("list_value", Array(element.type)), partition))
        return types, pa.table({"key": self.keys(rows), "list_value": values, PARTITION: numbers(partitions)})

    def values(self, rows: Records) -> pa.StructArray:
        """Return the values of a target that is not a list."""
        return self._values(rows, rows.value_start, rows.value_length)

    def keys(self, rows: Records) -> pa.StructArray:
        """Return the keys as they are stored; those of maps and timers are structs of several parts."""
        if self.target.kind == "raw":
            return _raw(self.target.schema.key, rows.keys, rows.key_start, rows.key_length)
        codec: RowCodec = AvroRows() if self._is_avro else UnsafeRows(version_byte=not self.hdfs)
        encoding = KeyEncoding("row") if self.hdfs else self.target.schema.encoding
        if self.target.has_given_schema and encoding.layout == "row":
            check_rows(self.target.schema.key, rows.keys, rows.key_start, rows.key_length, version_byte=not self.hdfs)
        return decode_keys(self.target.schema.key, encoding, codec, rows.keys, rows.key_start, rows.key_length)

    @property
    def key_row_start(self) -> int | None:
        """The position of the row within a stored key; None if keys are not plain unsafe rows."""
        if self._is_avro or self.target.kind == "raw" or not (self.hdfs or self.target.schema.encoding.layout == "row"):
            return None
        return 0 if self.hdfs else 1

    @property
    def _is_avro(self) -> bool:
        return self.settings.avro and self.target.family is not None

    def _list_elements(self, rows: Records) -> tuple[Ints, Ints, Ints]:
        return list_elements(
            rows.values,
            rows.value_start,
            rows.value_length,
            delimiter=self.settings.list_delimiter,
            header=self.settings.list_header,
        )

    def _values(self, rows: Records, start: Ints, length: Ints) -> pa.StructArray:
        if self.target.kind == "raw":
            return _raw(self.target.schema.value, rows.values, start, length)
        codec: RowCodec = UnsafeRows(version_byte=not self.hdfs)
        if self.target.has_given_schema:
            check_rows(self.target.schema.value, rows.values, start, length, version_byte=not self.hdfs)
        if self._is_avro:
            codec = AvroRows({past.value_schema_id: past.value for past in self.target.older_schemas})
        return codec.rows(self.target.schema.value, rows.values, start, length)

    def _named(self, keys: pa.StructArray, values: Callable[[], pa.StructArray]) -> dict[str, pa.Array]:
        match self.target.kind:
            case "list":
                return {"key": keys, "list_element": values()}
            case "map":
                return {"key": keys.field(0), "user_map_key": keys.field(1), "user_map_value": values()}
            case "timers":
                return {"key": keys.field(0), "expiration_timestamp_ms": keys.field(1)}
            case "side":
                types = column_types(self.target).fields
                return {"key": _narrowed(keys, types[0].type), "value": _narrowed(values(), types[1].type)}
            case _:
                return {"key": keys, "value": values()}


def _raw(kind: Struct, space: ByteSpace, start: Ints, length: Ints) -> pa.StructArray:
    return struct_of(kind, [binary(pa.binary(), space, start, length, None)], len(start), None)


def column_types(target: StateTarget) -> Struct:
    """Return the types of the columns of ``RowDecoder.table``."""
    key, value = target.schema.key, target.schema.value
    match target.kind:
        case "list":
            columns = [Field("key", key), Field("list_element", value)]
        case "map":
            parts = [field.type for field in key.fields]
            columns = [Field("key", parts[0]), Field("user_map_key", parts[1]), Field("user_map_value", value)]
        case "timers":
            columns = [Field("key", key.fields[0].type), Field("expiration_timestamp_ms", Atomic("long"))]
        case "side":
            columns = [Field("key", _without_last(key, "index")), Field("value", _without_last(value, "matched"))]
        case _:
            columns = [Field("key", key), Field("value", value)]
    return Struct((*columns, Field(PARTITION, Atomic("integer"))))


def _without_last(kind: Struct, name: str) -> Struct:
    """Return a type without its last field, if that has a name. A join adds an index to keys and a flag to rows."""
    return kind.slice(0, -1) if kind.names[-1] == name else kind


def _narrowed(rows: pa.StructArray, kind: SqlType) -> pa.StructArray:
    """Return the first fields of rows, as many as the type has."""
    assert isinstance(kind, Struct)
    return struct_of(kind, rows.flatten()[: len(kind.fields)], len(rows), None)


def flattened(table: pa.Table, structs: Container[str]) -> pa.Table:
    """Return a table with the fields of some of its structs as columns, under unique names."""
    columns, names = [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in structs and pa.types.is_struct(column.type):
            columns += one_array(column).flatten()
            names += [field.name for field in column.type]
        else:
            columns.append(column)
            names.append(name)
    return pa.table(columns, names=distinct(names))
