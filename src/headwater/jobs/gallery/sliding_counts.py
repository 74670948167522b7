"""Events per 10-minute window, with a new window every 5 minutes, in a memory table for SQL queries.

In complete mode the table always has every window, even those behind the watermark: no event is dropped.

With deduplicate=true an event of the same user and time counts once. The job then has two stateful operators in a row.
The first one keeps a key for each event of the last 30 minutes of event time, and drops events that arrive later than
that: it could no longer recognize a duplicate among them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Files, Job, Memory


def sliding_counts(
    events: DataFrame,
    *,
    window: str = "10 minutes",
    slide: str = "5 minutes",
    watermark: str = "30 minutes",
    deduplicate: bool = False,
) -> DataFrame:
    """Events per sliding window; with deduplicate=true, each event of a user counts once."""
    in_time = events.withWatermark("event_time", watermark)
    counted = in_time.dropDuplicates(["User", "event_time"]) if deduplicate else in_time
    return counted.groupBy(F.window("event_time", window, slide)).count()


SLIDING_COUNTS = Job(
    "sliding-counts",
    sliding_counts,
    reads=Files("data/events", schema="User STRING, event_time TIMESTAMP"),
    writes=Memory("sliding_counts"),
    mode="complete",
)
