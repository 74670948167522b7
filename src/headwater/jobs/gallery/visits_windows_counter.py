"""Visits in 10-minute windows: a small stateful job, easy to follow by eye while it is rewound.

Update mode prints a window whenever its count changed. With a 20-minute watermark every batch that moves the watermark
is followed by a batch without data, in which Spark lets closed windows go.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Job, Kafka


def count_visits(visits: DataFrame, *, window: str = "10 minutes", watermark: str = "20 minutes") -> DataFrame:
    """Visits per window, updated as records come in."""
    return visits.withWatermark("event_time", watermark).groupBy(F.window("event_time", window)).count()


VISITS_WINDOWS_COUNTER = Job(
    "visits-windows-counter",
    count_visits,
    reads=Kafka("visits", schema="event_id STRING, visit_id INT, event_time TIMESTAMP"),
    writes=Console(),
    mode="update",
    conf={"spark.sql.shuffle.partitions": "2"},
)
