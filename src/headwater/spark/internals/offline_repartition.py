"""Spark's offline change of the number of state partitions (``_streamingCheckpointManager``).

Seen on: PySpark 4.2.0, 4.3.0; 4.0 and 4.1 do not have it.
Without it: ``headwater repartition`` is refused.
"""

from __future__ import annotations

from pyspark.sql import SparkSession


def probe(spark: SparkSession) -> bool:
    return hasattr(spark, "_streamingCheckpointManager")


def repartition_state(spark: SparkSession, checkpoint: str, partitions: int) -> None:
    """Rewrite the state of a stopped query as one more batch with another number of partitions."""
    assert spark.streams.active is not None  # the state store coordinator starts when this is first read
    spark._streamingCheckpointManager.repartition(checkpoint, partitions)
