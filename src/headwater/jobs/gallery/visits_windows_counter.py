"""Visits per 10-minute window: a small stateful job whose output is easy to follow while you rewind it.

Update mode prints a window whenever its count changes. Each batch that advances the watermark is followed by a batch
without data, in which Spark evicts the windows that the watermark has passed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Job, Kafka


def count_visits(visits: DataFrame, *, window: str = "10 minutes", watermark: str = "20 minutes") -> DataFrame:
    """Visits per window, updated as records arrive."""
    return visits.withWatermark("event_time", watermark).groupBy(F.window("event_time", window)).count()


VISITS_WINDOWS_COUNTER = Job(
    "visits-windows-counter",
    count_visits,
    reads=Kafka("visits", schema="event_id STRING, visit_id INT, event_time TIMESTAMP"),
    writes=Console(),
    mode="update",
    conf={"spark.sql.shuffle.partitions": "2"},
)
