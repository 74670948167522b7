"""Undecoded rows to the columns that Spark's ``statestore`` source shows for each kind of state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.statefiles.keys import decode_keys
from headwater.statefiles.records import Records
from headwater.statefiles.rowcodec import AvroRows, RowCodec, UnsafeRows
from headwater.statefiles.schemafile import KeyEncoding
from headwater.statefiles.sqltypes import Atomic, Field, Struct
from headwater.statefiles.stores import StateTarget
from headwater.statefiles.values import list_elements

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
    key_rows: RowCodec = AvroRows() if avro else UnsafeRows(version_byte=not hdfs)
    encoding = KeyEncoding("whole") if hdfs else target.schema.encoding
    keys = decode_keys(target.schema.key, encoding, key_rows, rows.keys, rows.key_start, rows.key_length)
    columns = _named(target, keys, lambda: _values(target, rows, start, length, avro=avro, hdfs=hdfs))
    return pa.table({**columns, "partition_id": pa.array(partitions)})


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
        case _:
            columns = [Field("key", key), Field("value", value)]
    return Struct((*columns, Field("partition_id", Atomic("integer"))))


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
        case _:
            return {"key": keys, "value": values()}
