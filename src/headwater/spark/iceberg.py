"""Iceberg tables as sinks. A snapshot records the query and the batch that wrote it, so a batch is applied exactly once."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
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


def write_iceberg_batch(sink: Iceberg, frame: DataFrame, batch_id: int) -> None:
    """Append one micro-batch. If it was applied before, only run it, so that Spark writes its state."""
    spark = frame.sparkSession
    query_id = str(spark.sparkContext.getLocalProperty(QUERY_ID_PROPERTY))
    if not spark.catalog.tableExists(sink.table):
        created = frame.limit(0).writeTo(sink.table).using("iceberg")
        (
            created.partitionedBy(*[frame[name] for name in sink.partition_names]) if sink.partition_names else created
        ).create()
    if _applied(spark, sink, query_id) >= batch_id:
        frame.write.format("noop").mode("overwrite").save()
        return
    record = {f"snapshot-property.{QUERY_ID}": query_id, f"snapshot-property.{EPOCH_ID}": str(batch_id)}
    frame.writeTo(sink.table).options(**{**DEFAULT_OPTIONS, **sink.options, **record}).append()


def _applied(spark: SparkSession, sink: Iceberg, query_id: str) -> int:
    """Return the last batch of a query that the table's current snapshot includes; -1 if there is none."""
    history = spark.table(f"{sink.table}.history").where("is_current_ancestor").select("snapshot_id")
    snapshots = spark.table(f"{sink.table}.snapshots").join(history, "snapshot_id", "left_semi")
    mine = snapshots.where(f"summary['{QUERY_ID}'] = '{query_id}'")
    newest = mine.selectExpr(f"max(CAST(summary['{EPOCH_ID}'] AS BIGINT))").first()
    return -1 if newest is None or newest[0] is None else int(newest[0])
