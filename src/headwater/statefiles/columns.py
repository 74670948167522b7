"""Undecoded rows to the columns that Spark's ``statestore`` source shows for each kind of state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.statefiles.buffers import numbers
from headwater.statefiles.latest import list_elements
from headwater.statefiles.records import Records
from headwater.statefiles.rowcodec import AvroRows, RowCodec, UnsafeRows, decode_keys
from headwater.statefiles.schemafile import KeyEncoding
from headwater.statefiles.sqltypes import Array, Atomic, Field, SqlType, Struct
from headwater.statefiles.stores import StateTarget
from headwater.statefiles.unsaferow import struct_of

if TYPE_CHECKING:
    from headwater.statefiles.reader import StoreSettings

_CHECKSUM_AND_LENGTH = 8


def present(
    target: StateTarget, rows: Records, partitions: np.ndarray, settings: StoreSettings, *, hdfs: bool
) -> pa.Table:
    """``key``, then the columns for the kind of state, then ``partition_id``."""
    avro = settings.avro and target.family is not None
    if target.is_list:
        before = _CHECKSUM_AND_LENGTH if settings.row_checksums else 0
        owner, start, length = list_elements(
            rows.values, rows.value_start, rows.value_length, between=settings.list_joint, before=before
        )
        rows, partitions = rows.take(owner), partitions[owner]
    else:
        start, length = rows.value_start, rows.value_length
    keys = decode_all_keys(target, rows, settings, hdfs=hdfs)
    columns = _named(target, keys, lambda: _values(target, rows, start, length, avro=avro, hdfs=hdfs))
    return pa.table({**columns, "partition_id": numbers(partitions)})


def decode_all_keys(target: StateTarget, rows: Records, settings: StoreSettings, *, hdfs: bool) -> pa.StructArray:
    """The keys as they are stored; those of maps and timers are structs of several parts."""
    avro = settings.avro and target.family is not None
    codec: RowCodec = AvroRows() if avro else UnsafeRows(version_byte=not hdfs)
    encoding = KeyEncoding("whole") if hdfs else target.schema.encoding
    return decode_keys(target.schema.key, encoding, codec, rows.keys, rows.key_start, rows.key_length)


def lists_as_values(
    target: StateTarget, rows: Records, partitions: np.ndarray, settings: StoreSettings, *, hdfs: bool
) -> tuple[Struct, pa.Table]:
    """A row for each key, its elements as one list."""
    flat = present(target, rows, partitions, settings, hdfs=hdfs).combine_chunks()
    owner, _, _ = list_elements(rows.values, rows.value_start, rows.value_length, between=0, before=0)
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=len(rows)), out=offsets[1:])
    element = flat.column_names[1]
    elements = flat[element].chunk(0) if flat.num_rows else flat[element].combine_chunks()
    keys = decode_all_keys(target, rows, settings, hdfs=hdfs)
    values = pa.ListArray.from_arrays(numbers(offsets), elements)
    types = column_types(target)
    listed = Struct(
        (types.fields[0], Field("list_value", Array(types.fields[1].type)), Field("partition_id", Atomic("integer")))
    )
    return listed, pa.table({"key": keys, "list_value": values, "partition_id": numbers(partitions)})


def column_types(target: StateTarget) -> Struct:
    """The types of the columns that ``present`` gives."""
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
            columns = [Field("key", _without(key, "index")), Field("value", _without(value, "matched"))]
        case _:
            columns = [Field("key", key), Field("value", value)]
    return Struct((*columns, Field("partition_id", Atomic("integer"))))


def _without(kind: Struct, last: str) -> Struct:
    """A join's key without the number that it adds, its row without the mark of a partner: both come last."""
    return kind.slice(0, -1) if kind.names[-1] == last else kind


def _narrowed(rows: pa.StructArray, kind: SqlType) -> pa.StructArray:
    """The first fields of rows, as many as a type has."""
    assert isinstance(kind, Struct)
    return struct_of(kind, rows.flatten()[: len(kind.fields)], len(rows), None)


def _values(
    target: StateTarget, rows: Records, start: np.ndarray, length: np.ndarray, *, avro: bool, hdfs: bool
) -> pa.StructArray:
    codec: RowCodec = UnsafeRows(version_byte=not hdfs)
    if avro:
        codec = AvroRows({past.value_schema_id: past.value for past in target.older_schemas})
    return codec.rows(target.schema.value, rows.values, start, length)


def _named(target: StateTarget, keys: pa.StructArray, values: Callable[[], pa.StructArray]) -> dict[str, pa.Array]:
    match target.kind:
        case "list":
            return {"key": keys, "list_element": values()}
        case "map":
            return {"key": keys.field(0), "user_map_key": keys.field(1), "user_map_value": values()}
        case "timers":
            return {"key": keys.field(0), "expiration_timestamp_ms": keys.field(1)}
        case "side":
            kinds = column_types(target).fields
            return {"key": _narrowed(keys, kinds[0].type), "value": _narrowed(values(), kinds[1].type)}
        case _:
            return {"key": keys, "value": values()}
