"""Visits per browser and 5-minute window, counted across micro-batches.

The state holds one row for each open window and browser. A record may arrive up to 20 minutes late: when the watermark
passes the end of a window, Spark evicts the window, and records that still arrive for it are dropped.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Job, Kafka
from headwater.jobs.gallery._records import VISIT, visits_per_browser


def browser_stats(visits: DataFrame, *, window: str = "5 minutes", watermark: str = "20 minutes") -> DataFrame:
    """Visits per browser and window, updated as records arrive."""
    return visits_per_browser(visits.withWatermark("eventTime", watermark), window)


BROWSER_STATS_STATEFUL = Job(
    "browser-stats-stateful",
    browser_stats,
    reads=Kafka("visits", schema=VISIT),
    writes=Kafka("browser-stats-stateful", key="browser"),
    mode="update",
)
