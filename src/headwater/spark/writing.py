"""Sinks: how the rows of a stream, or of a single batch, are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import BinaryType, StringType, StructType

from headwater.jobs.endpoints import Console, Files, Kafka, Memory, Postgres, Sink, Table
from headwater.kafka.options import Connection
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
    spark: SparkSession, writer: DataStreamWriter, sink: Sink, schema: StructType, generation: int = 0
) -> StreamingQuery:
    """Start a query that writes to the sink."""
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
            format_name = prepare_table(spark, sink, schema)
            return writer.options(**sink.options).toTable(sink.name, format=format_name)
        case Postgres():
            return writer.foreachBatch(batch_writer(spark, sink, schema, generation)).start()


def encode_for(sink: Sink, frame: DataFrame) -> DataFrame:
    """Return the rows as the sink stores them: JSON values with a key for Kafka, unchanged for other sinks."""
    return _as_kafka_records(frame, sink) if isinstance(sink, Kafka) else frame


def batch_writer(spark: SparkSession, sink: Sink, schema: StructType, generation: int = 0) -> BatchWriter:
    """Return a function that writes one batch of static rows. Only PostgreSQL ignores a batch written before."""
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


def kafka_options(sink: Kafka) -> dict[str, str]:
    """Return the options with which Spark writes to a topic."""
    connection = Connection(sink.servers, sink.options)
    return {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, **sink.options, **connection.spark_options()}


def _as_kafka_records(frame: DataFrame, sink: Kafka) -> DataFrame:
    if _has_kafka_columns(frame.schema):
        return frame
    value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in frame.columns])).alias("value")
    if sink.key is None:
        return frame.select(value)
    columns = [F.col(name) for name in sink.key_names]
    key = columns[0].cast("string") if len(columns) == 1 else F.to_json(F.struct(*columns))
    return frame.select(key.alias("key"), value)


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
