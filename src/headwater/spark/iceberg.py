"""Iceberg tables as sinks. A snapshot records the query and the batch that wrote it, so a batch is applied exactly once."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from headwater.jobs.endpoints import Iceberg
from headwater.spark.postgres import QUERY_ID_PROPERTY

# Spark's tasks write rows in the order in which they arrive, so one task may write to several partitions at a time.
DEFAULT_OPTIONS = {"fanout-enabled": "true"}
# The properties that Iceberg's own streaming sink gives to its snapshots, in lower case: Spark folds names of options.
QUERY_ID = "spark.sql.streaming.queryid"
EPOCH_ID = "spark.sql.streaming.epochid"


def start_iceberg(writer: DataStreamWriter, sink: Iceberg) -> StreamingQuery:
    """Start a query that appends to the table, or replaces its rows in complete mode. It creates a missing table."""
    if sink.partition_names:
        writer = writer.partitionBy(*sink.partition_names)
    return writer.format("iceberg").options(**{**DEFAULT_OPTIONS, **sink.options}).toTable(sink.table)


def create_iceberg_table(sink: Iceberg, frame: DataFrame) -> None:
    """Create an empty table with the columns of a frame, unless there is one."""
    if frame.sparkSession.catalog.tableExists(sink.table):
        return
    created = frame.limit(0).writeTo(sink.table).using("iceberg")
    if sink.partition_names:
        created = created.partitionedBy(*[frame[name] for name in sink.partition_names])
    created.create()


def write_iceberg_batch(sink: Iceberg, frame: DataFrame, batch_id: int) -> None:
    """Append one micro-batch. If it was applied before, only run it, so that Spark writes its state."""
    _write(sink, frame, batch_id, lambda rows: rows.append())


def replace_iceberg_rows(sink: Iceberg, frame: DataFrame, batch_id: int) -> None:
    """Replace all rows by those of one micro-batch, in the same way."""
    _write(sink, frame, batch_id, lambda rows: rows.overwrite(F.lit(True)))


def _write(sink: Iceberg, frame: DataFrame, batch_id: int, act: Callable[[DataFrameWriterV2], None]) -> None:
    spark = frame.sparkSession
    query_id = str(spark.sparkContext.getLocalProperty(QUERY_ID_PROPERTY))
    create_iceberg_table(sink, frame)
    if _applied(spark, sink, query_id) >= batch_id:
        frame.write.format("noop").mode("overwrite").save()
        return
    record = {f"snapshot-property.{QUERY_ID}": query_id, f"snapshot-property.{EPOCH_ID}": str(batch_id)}
    act(frame.writeTo(sink.table).options(**{**DEFAULT_OPTIONS, **sink.options, **record}))


def _applied(spark: SparkSession, sink: Iceberg, query_id: str) -> int:
    """Return the last batch of a query that the table's current snapshot includes; -1 if there is none.

    The table's history would not do: it ends where a table was empty for a time, as after a rewind to the start.
    """
    columns = "snapshot_id", "parent_id", f"summary['{QUERY_ID}']", f"summary['{EPOCH_ID}']"
    found = spark.table(f"{sink.table}.snapshots").selectExpr(*columns).collect()
    snapshots = {row[0]: row for row in found}
    main = spark.table(f"{sink.table}.refs").where("name = 'main'").select("snapshot_id").first()
    at = main[0] if main else None
    while at in snapshots:
        _, at, owner, batch = snapshots[at]
        if owner == query_id and batch is not None:
            return int(batch)
    return -1
