"""Sinks: how the rows of a stream, or of a single batch, are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Console, Delta, Files, Iceberg, Kafka, Memory, Postgres, Sink, Table
from headwater.jobs.kafka_rules import check_kafka_sink
from headwater.kafka.options import Connection
from headwater.spark.avro_schemas import sink_schema, sink_text
from headwater.spark.binary_records import encode_records
from headwater.spark.delta import append_batch, create_table, merge_batch, start_delta, without_stream_metadata
from headwater.spark.iceberg import start_iceberg, write_iceberg_batch
from headwater.spark.internals.gateway import print_line
from headwater.spark.memory_tables import replacing_table
from headwater.spark.postgres import upsert_batch
from headwater.spark.tables import prepare_table

BatchWriter: TypeAlias = Callable[[DataFrame, int], None]
Rows: TypeAlias = list[dict[str, Any]]

KAFKA_COLUMNS = {"key", "value", "topic", "partition", "headers"}
ALL_ROWS = str(2**31 - 1)
CONSOLE_OPTIONS = {"truncate": "false", "numRows": ALL_ROWS}


def start_stream(
    spark: SparkSession, writer: DataStreamWriter, sink: Sink, result: DataFrame, generation: int = 0
) -> StreamingQuery:
    """Start a query that writes the result of a job to the sink."""
    match sink:
        case Console():
            return writer.format("console").options(**{**CONSOLE_OPTIONS, **sink.options}).start()
        case Memory():
            return writer.format("memory").queryName(sink.name).start()
        case Files():
            options = {"path": sink.path, **sink.options}
            return writer.format(sink.format or "parquet").options(**options).start()
        case Kafka():
            return writer.format("kafka").options(**kafka_options(sink)).start()
        case Table():
            format_name = prepare_table(spark, sink, result.schema)
            return writer.options(**sink.options).toTable(sink.name, format=format_name)
        case Postgres():
            return writer.foreachBatch(batch_writer(spark, sink, result.schema, generation)).start()
        case Delta():
            return start_delta(spark, writer, sink, result)
        case Iceberg():
            return start_iceberg(writer, sink)


def encode_for(sink: Sink, frame: DataFrame) -> DataFrame:
    """Return the rows as the sink stores them: for Kafka, JSON or Avro values with key and headers.

    An Avro schema is registered if the sink has a registry.
    """
    if isinstance(sink, Kafka):
        return _as_kafka_records(frame, sink)
    return without_stream_metadata(frame) if isinstance(sink, Delta | Iceberg) else frame


def batch_writer(spark: SparkSession, sink: Sink, schema: StructType, generation: int = 0) -> BatchWriter:
    """Return a function that writes one batch of static rows.

    PostgreSQL, Delta and Iceberg ignore a batch that was written before.
    """
    match sink:
        case Console():
            return lambda frame, batch_id: _print_batch(spark, frame, batch_id)
        case Memory():
            return _memory_writer(spark, sink, schema)
        case Files():
            form = sink.format or "parquet"
            return lambda frame, _: frame.write.mode("append").format(form).options(**sink.options).save(sink.path)
        case Kafka():
            options = kafka_options(sink)
            return lambda frame, _: encode_for(sink, frame).write.format("kafka").options(**options).save()
        case Table():
            prepare_table(spark, sink, schema)
            return lambda frame, _: frame.write.insertInto(sink.name)
        case Postgres():
            return lambda frame, batch_id: upsert_batch(sink, frame, batch_id, generation)
        case Delta() if sink.merge_names:
            create_table(spark, sink, schema)
            return lambda frame, batch_id: merge_batch(sink, frame, batch_id)
        case Delta():
            return lambda frame, batch_id: append_batch(sink, frame, batch_id)
        case Iceberg():
            return lambda frame, batch_id: write_iceberg_batch(sink, frame, batch_id)


def kafka_options(sink: Kafka) -> dict[str, str]:
    """Return the options with which Spark writes to a topic."""
    connection = Connection(sink.servers, sink.options)
    return {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, **sink.options, **connection.spark_options()}


def check_encodable(sink: Sink, columns: StructType) -> None:
    """Refuse columns that the sink's record format cannot hold. Nothing is registered or written."""
    if not isinstance(sink, Kafka):
        return
    check_kafka_sink(sink)
    if sink.headers is not None:
        _header_column(sink.headers, columns)
    if sink.format == "raw" and not _has_kafka_columns(columns):
        raise JobRefused(
            "record-format",
            "the job's result does not consist of Kafka's own columns",
            evidence={"columns": ", ".join(columns.fieldNames()), "allowed": ", ".join(sorted(KAFKA_COLUMNS))},
            remedy='select value (STRING or BINARY) and any of the others, or let the sink encode: format="json"',
        )
    if sink.format == "avro":
        sink_text(sink, _value_columns(sink, columns))


def _as_kafka_records(frame: DataFrame, sink: Kafka) -> DataFrame:
    check_encodable(sink, frame.schema)
    if sink.format != "avro" and _has_kafka_columns(frame.schema):
        return frame
    columns = _value_columns(sink, frame.schema)
    record = F.struct(*[F.col(f"`{name}`") for name in columns.fieldNames()])
    around = []
    if sink.key is not None:
        keys = [F.col(name) for name in sink.key_names]
        key = keys[0].cast("string") if len(keys) == 1 else F.to_json(F.struct(*keys))
        around.append(key.alias("key"))
    if sink.headers is not None:
        around.append(_header_column(sink.headers, frame.schema).alias("headers"))
    if sink.format == "avro":
        rows = frame.select(record.alias("record"), *around)
        return encode_records(rows, sink_schema(sink, columns), keep=rows.columns[1:])
    return frame.select(*around, F.to_json(record).alias("value"))


def _value_columns(sink: Kafka, columns: StructType) -> StructType:
    """Return the columns of a record's value: all except the one that holds its headers."""
    return StructType([one for one in columns.fields if one.name != sink.headers])


def _header_column(name: str, columns: StructType) -> Column:
    """Return the headers of each record as Spark's sink needs them, from an array of keys and values or from a map."""
    kind = next((one.dataType for one in columns.fields if one.name == name), None)
    column = F.col(f"`{name}`")
    if isinstance(kind, MapType) and isinstance(kind.valueType, StringType | BinaryType):
        column = F.map_entries(column)
    elif not (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and kind.elementType.fieldNames() == ["key", "value"]
    ):
        raise JobRefused(
            "record-format",
            f"the column {name} cannot hold headers" if kind else f"headers names a column that does not exist: {name}",
            evidence={"type": kind.simpleString()} if kind else {"columns": ", ".join(columns.fieldNames())},
            remedy="use a map<string,string>, or an array<struct<key:string,value:binary>>",
        )
    return F.transform(
        column,
        lambda header: F.struct(
            header["key"].cast("string").alias("key"), header["value"].cast("binary").alias("value")
        ),
    )


def _has_kafka_columns(schema: StructType) -> bool:
    """Return whether the job builds Kafka's own columns itself, so that its rows are not encoded as JSON."""
    types = {field.name: field.dataType for field in schema.fields}
    return types.keys() <= KAFKA_COLUMNS and isinstance(types.get("value"), StringType | BinaryType)


def _print_batch(spark: SparkSession, frame: DataFrame, batch_id: int) -> None:
    rule = "-" * 43
    print_line(spark, f"{rule}\nBatch: {batch_id}\n{rule}")
    frame.write.format("console").options(**CONSOLE_OPTIONS).mode("append").save()


def _memory_writer(spark: SparkSession, sink: Memory, schema: StructType) -> BatchWriter:
    rows: list[object] = []
    spark.createDataFrame([], schema).createOrReplaceTempView(sink.name)

    def append(frame: DataFrame, batch_id: int) -> None:
        rows.extend(frame.collect())
        with replacing_table(sink.name, batch_id):
            spark.createDataFrame(rows, schema).createOrReplaceTempView(sink.name)

    return append


def captured_rows(frame: DataFrame) -> Rows:
    """Run the frame once and return all rows, nulls included, as a JSON reader would see them."""
    columns = [F.col(f"`{name}`") for name in frame.columns]
    texts = frame.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})).collect()
    return [json.loads(text[0]) for text in texts]


def capturing_writer(result_of: Callable[[DataFrame], DataFrame], on_rows: Callable[[int, Rows], None]) -> BatchWriter:
    """Return a ``foreachBatch`` function that replaces a job's sink and passes on the rows of each batch's result."""

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        on_rows(batch_id, captured_rows(result_of(batch)))

    return on_batch
