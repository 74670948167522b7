"""Events per 10-minute window, with a new window every 5 minutes, in a memory table for SQL queries.

In complete mode the table always has every window, even those behind the watermark: no event is dropped.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Files, Job, Memory


def sliding_counts(
    events: DataFrame, *, window: str = "10 minutes", slide: str = "5 minutes", watermark: str = "30 minutes"
) -> DataFrame:
    """Events per sliding window."""
    return events.withWatermark("event_time", watermark).groupBy(F.window("event_time", window, slide)).count()


SLIDING_COUNTS = Job(
    "sliding-counts",
    sliding_counts,
    reads=Files("data/events", schema="User STRING, event_time TIMESTAMP"),
    writes=Memory("sliding_counts"),
    mode="complete",
)
