"""Counts per key, whose state is as large as the number of keys, to measure the cost of a large state."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Files, Job, Kafka


def key_counts(rows: DataFrame) -> DataFrame:
    """Count the rows of each key so far."""
    return rows.groupBy("key").agg(F.count("*").alias("count"))


KEY_COUNTS = Job(
    "key-counts",
    key_counts,
    reads=Files("keys", format="json", schema="key STRING"),
    writes=Kafka("key-counts", key="key"),
    mode="update",
)
