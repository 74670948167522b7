"""Visits per browser and 5-minute window, counted within each micro-batch only.

``per_batch`` passes each micro-batch to the function as a static DataFrame. There is no state and no watermark, and no
record is late. A window that spans two batches is emitted twice, each time with a part of its visits.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Job, Kafka
from headwater.jobs.gallery._records import VISIT, visits_per_browser


def browser_stats(visits: DataFrame, *, window: str = "5 minutes") -> DataFrame:
    """Visits per browser and window, within each micro-batch only."""
    return visits_per_browser(visits, window)


BROWSER_STATS_STATELESS = Job(
    "browser-stats-stateless",
    browser_stats,
    reads=Kafka("visits", schema=VISIT),
    writes=Kafka("browser-stats-stateless", key="browser"),
    mode="update",
    per_batch=True,
)
