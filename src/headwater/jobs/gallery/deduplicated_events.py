"""Events without duplicates, within a batch and across batches.

The state holds one key for each event of the last 30 minutes of event time. An event that arrives later than that is
dropped even if it is not a duplicate, because its key would no longer be in the state.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Files, Job


def deduplicated_events(events: DataFrame, *, watermark: str = "30 minutes") -> DataFrame:
    """Each event of a user once, even if the source repeats it."""
    return events.withWatermark("event_time", watermark).dropDuplicates(["User", "event_time"])


DEDUPLICATED_EVENTS = Job(
    "deduplicated-events",
    deduplicated_events,
    reads=Files("data/events", schema="User STRING, event_time TIMESTAMP"),
    writes=Files("out/deduplicated-events", format="json"),
    mode="append",
)
