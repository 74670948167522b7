"""Events without their duplicates, within a batch and across batches.

The state holds one key for each event of the last 30 minutes of event time. An event that comes later than that is
dropped, whether it is a duplicate or not: Spark could not tell any more.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Files, Job


def deduplicated_events(events: DataFrame, *, watermark: str = "30 minutes") -> DataFrame:
    """Each event of a user once, whatever the source repeats."""
    return events.withWatermark("event_time", watermark).dropDuplicates(["User", "event_time"])


DEDUPLICATED_EVENTS = Job(
    "deduplicated-events",
    deduplicated_events,
    reads=Files("data/events", schema="User STRING, event_time TIMESTAMP"),
    writes=Files("out/deduplicated-events", format="json"),
    mode="append",
)
