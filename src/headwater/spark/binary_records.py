"""Avro and Protobuf records on Spark: decoded and encoded in Python workers, a batch of Arrow at a time.

Spark's own ``from_avro`` knows a single writer's schema, and a topic has as many as its producers have registered.
``from_protobuf`` does not check which message a record is. Both need jars that fit the version of Spark exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StructField, StructType

from headwater.formats.avro import AvroEncoder
from headwater.formats.columns import decode_all
from headwater.formats.resolving import decoder_for
from headwater.formats.schema import RecordSchema

Batches: TypeAlias = Iterator[pa.RecordBatch]


def decode_records(raw: DataFrame, schema: RecordSchema, *, keep: Sequence[str], malformed: str) -> DataFrame:
    """Return the columns of the records in ``value``, the columns ``keep``, and whether each record is malformed."""
    columns = StructType.fromDDL(decoder_for(schema).row_type.ddl)
    kept = raw.select(*keep).schema.fields
    result = StructType([*columns.fields, StructField(malformed, BooleanType()), *kept])
    return raw.select("value", *keep).mapInArrow(_decoding(schema, result.fieldNames()), result)


def encode_records(rows: DataFrame, schema: RecordSchema, *, keep: Sequence[str]) -> DataFrame:
    """Return the struct ``record`` of each row as Avro in ``value``, and the columns ``keep``."""
    kept = rows.select(*keep).schema.fields
    result = StructType.fromDDL("value BINARY")
    return rows.select("record", *keep).mapInArrow(_encoding(schema), StructType([*result.fields, *kept]))


def _decoding(schema: RecordSchema, names: Sequence[str]) -> Callable[[Batches], Batches]:
    def decode(batches: Batches) -> Batches:
        decoder = decoder_for(schema, in_batch=True)
        for batch in batches:
            columns, malformed = decode_all(decoder, batch.column(0).to_pylist())
            yield pa.RecordBatch.from_arrays([*columns, malformed, *batch.columns[1:]], names=list(names))

    return decode


def _encoding(schema: RecordSchema) -> Callable[[Batches], Batches]:
    def encode(batches: Batches) -> Batches:
        encoder = AvroEncoder(schema)
        for batch in batches:
            rows = batch.column(0).to_pylist(maps_as_pydicts="strict")
            values = pa.array([encoder.encode(row) for row in rows], pa.binary())
            names = ["value", *batch.schema.names[1:]]
            yield pa.RecordBatch.from_arrays([values, *batch.columns[1:]], names=names)

    return encode
