"""Delta tables as sources and sinks. A batch's rows and its id are written in one commit, so it is applied exactly once.

The commit records Spark's query id as ``txn.appId`` and the batch as ``txn.version``. Spark's own Delta sink does this for
rows that are appended and for complete mode; ``merge_batch`` and ``append_batch`` do the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import DataType, StructField, StructType

from headwater.core.errors import JobFailed, JobRefused
from headwater.jobs.endpoints import Delta
from headwater.spark.failures import SPARK_ERRORS
from headwater.spark.internals.plans import has_distinct_rows
from headwater.spark.postgres import QUERY_ID_PROPERTY
from headwater.spark.session import temporary_settings

APP_ID = "spark.databricks.delta.write.txnAppId"
VERSION = "spark.databricks.delta.write.txnVersion"
BATCH_VIEW = "headwater_batch"
NEW_ROWS = "headwater_new_rows"
COUNT = "headwater_count"
REPEATED_KEY = "headwater: repeated key "


class Metadata(dict[str, Any]):
    """The metadata that a column gets. PySpark 4.0 ignores an empty dictionary, so this one is always true."""

    def __bool__(self) -> bool:
        return True


def location(table: Delta) -> str:
    """Return the path or URL of a table. A path is absolute, so that it means the same to every part of Spark."""
    path = table.path.removeprefix("file://")
    return path if "://" in path else str(Path(path).absolute())


def is_table(table: Delta) -> bool:
    """Return whether a folder on this machine is a table; True for a URL, which is not checked."""
    place = location(table)
    return "://" in place or (Path(place) / "_delta_log").is_dir()


def sql_name(table: Delta) -> str:
    """Return the table as SQL names it."""
    return "delta.`{}`".format(location(table).replace("`", "``"))


def start_delta(spark: SparkSession, writer: DataStreamWriter, sink: Delta, result: DataFrame) -> StreamingQuery:
    """Start a query that appends to the table, replaces it in complete mode, or merges into it."""
    if sink.merge_names:
        create_table(spark, sink, result.schema)
        is_unique = has_distinct_rows(result, sink.merge_names)
        return writer.foreachBatch(
            lambda frame, batch_id: merge_batch(sink, frame, batch_id, is_unique=is_unique)
        ).start()
    if sink.partition_names:
        writer = writer.partitionBy(*sink.partition_names)
    return writer.format("delta").options(**sink.options).start(location(sink))


def create_table(spark: SparkSession, sink: Delta, schema: StructType) -> None:
    """Create an empty table unless there is one."""
    columns = [StructField(one.name, one.dataType, one.nullable, _kept_metadata(one)) for one in schema.fields]
    rows = spark.createDataFrame([], StructType(columns)).write.format("delta").options(**sink.options)
    if sink.partition_names:
        rows = rows.partitionBy(*sink.partition_names)
    rows.mode("ignore").save(location(sink))


def without_stream_metadata(frame: DataFrame) -> DataFrame:
    """Return the rows without Spark's notes on watermarks and windows, which a table would pass on to its readers."""
    columns = []
    for field in frame.schema.fields:
        kept, column = _kept_metadata(field), F.col(f"`{field.name}`")
        columns.append(column if kept == (field.metadata or {}) else column.alias(field.name, metadata=kept))
    return frame.select(*columns)


def _kept_metadata(field: StructField) -> Metadata:
    return Metadata({name: value for name, value in (field.metadata or {}).items() if not name.startswith("spark.")})


def replace_rows(sink: Delta, frame: DataFrame, batch_id: int) -> None:
    """Replace all rows by those of one micro-batch. One that was applied before changes nothing."""
    _write(sink, frame, batch_id, "overwrite")


def append_batch(sink: Delta, frame: DataFrame, batch_id: int) -> None:
    """Append the rows of one micro-batch. One that was applied before changes nothing."""
    _write(sink, frame, batch_id, "append")


def _write(sink: Delta, frame: DataFrame, batch_id: int, mode: str) -> None:
    rows = frame.write.format("delta").options(**sink.options, txnAppId=_query_id(frame), txnVersion=str(batch_id))
    if sink.partition_names:
        rows = rows.partitionBy(*sink.partition_names)
    rows.mode(mode).save(location(sink))


def merge_batch(sink: Delta, frame: DataFrame, batch_id: int, *, is_unique: bool = False) -> None:
    """Upsert the rows of one micro-batch by the columns of ``merge_on``. One that was applied before changes nothing.

    A key that occurs twice fails the batch. Looking for one shuffles the rows, so it is left out if ``is_unique``.
    """
    spark = frame.sparkSession
    rows = frame if is_unique else _with_unique_keys(sink, frame, key_columns(sink, frame.schema))
    rows.createOrReplaceTempView(BATCH_VIEW)
    try:
        with temporary_settings(spark, {APP_ID: _query_id(frame), VERSION: str(batch_id)}):
            merged = spark.sql(merge_statement(sink, frame.schema)).collect()
    except SPARK_ERRORS as error:
        raise _repeated_key(sink, batch_id, error) or error from error
    finally:
        spark.catalog.dropTempView(BATCH_VIEW)
    if not merged:  # Delta skipped the batch without running it, and Spark needs its state
        frame.write.format("noop").mode("overwrite").save()


def insert_new(sink: Delta, rows: DataFrame, keys: Sequence[str]) -> None:
    """Insert the rows whose keys the table does not have yet, outside a streaming query."""
    spark = rows.sparkSession
    rows.dropDuplicates(list(keys)).createOrReplaceTempView(NEW_ROWS)
    condition = " AND ".join(f"t.`{key}` <=> s.`{key}`" for key in keys)
    statement = f"MERGE INTO {sql_name(sink)} AS t USING {NEW_ROWS} AS s ON {condition} WHEN NOT MATCHED THEN INSERT *"
    try:
        spark.sql(statement).collect()
    finally:
        spark.catalog.dropTempView(NEW_ROWS)


def merge_statement(sink: Delta, schema: StructType) -> str:
    """Return the SQL that merges a batch. A null equals a null; keys that are never null are compared faster."""
    evolve = " WITH SCHEMA EVOLUTION" if sink.options.get("mergeSchema", "").lower() == "true" else ""
    condition = " AND ".join(
        f"t.{_quoted(parts)} {'<=>' if _is_nullable(schema, parts) else '='} s.{_quoted(parts)}"
        for parts in _key_parts(sink, schema)
    )
    return (
        f"MERGE{evolve} INTO {sql_name(sink)} AS t USING {BATCH_VIEW} AS s ON {condition} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _with_unique_keys(sink: Delta, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows. Reading them fails if two have the same key: which of them a merge would keep is undefined."""
    values = F.struct(*[F.col(key).alias(name) for key, name in zip(keys, sink.merge_names, strict=True)])
    message = F.concat(F.lit(REPEATED_KEY), F.col(COUNT), F.lit(" "), F.to_json(values))
    counted = frame.withColumn(COUNT, F.count(F.lit(1)).over(Window.partitionBy(*keys)))
    is_unique = F.when(F.col(COUNT) == 1, True).otherwise(F.raise_error(message).cast("boolean"))
    return counted.where(is_unique).drop(COUNT)


def key_columns(sink: Delta, schema: StructType) -> list[str]:
    """Return the columns of ``merge_on``, quoted. ``window.start`` is a field of a struct, ``window`` all of it."""
    return [_quoted(parts) for parts in _key_parts(sink, schema)]


def _key_parts(sink: Delta, schema: StructType) -> list[list[str]]:
    found = []
    for name in sink.merge_names:
        parts = [name] if name in schema.fieldNames() else name.split(".")
        if not _has_field(schema, parts):
            raise _unknown_column("merge_on", name, schema)
        found.append(parts)
    return found


def _quoted(parts: Sequence[str]) -> str:
    return ".".join(f"`{part}`" for part in parts)


def _is_nullable(schema: StructType, parts: Sequence[str]) -> bool:
    field = schema[parts[0]]
    return field.nullable or (len(parts) > 1 and _is_nullable(field.dataType, parts[1:]))


def check_columns(sink: Delta, schema: StructType) -> None:
    """Refuse keys and partition columns that the job's result does not have."""
    key_columns(sink, schema)
    unknown = [name for name in sink.partition_names if name not in schema.fieldNames()]
    if unknown:
        raise _unknown_column("partition_by", unknown[0], schema)


def _unknown_column(option: str, name: str, schema: StructType) -> JobRefused:
    return JobRefused(
        "unknown-column",
        f"{option} names {name!r}, which the job's result does not have",
        evidence={"columns": ", ".join(schema.fieldNames())},
        remedy=f"name one or more of these columns in {option}",
    )


def _has_field(schema: DataType, parts: Sequence[str]) -> bool:
    for part in parts:
        if not isinstance(schema, StructType) or part not in schema.fieldNames():
            return False
        schema = schema[part].dataType
    return True


def _repeated_key(sink: Delta, batch_id: int, error: Exception) -> JobFailed | None:
    """Return the error for a batch in which two rows have the same key; None if it failed for another reason."""
    found = re.search(rf"{REPEATED_KEY}(\d+) (\{{.*?\}})(?:\s|$)", str(error))
    if found is None:
        return None
    return JobFailed(
        "repeated-key",
        f"batch {batch_id} has {found[1]} rows with the same key, so it cannot be merged into {sink.path}",
        evidence={"key": found[2]},
        remedy="name more columns in merge_on, or aggregate or deduplicate the rows by these columns in the job",
    )


def _query_id(frame: DataFrame) -> str:
    query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if query_id is None:
        raise ValueError("a batch can be written only inside a streaming query")
    return str(query_id)
