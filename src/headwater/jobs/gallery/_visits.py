"""What the two browser statistics jobs share: the records, and what is counted."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

VISIT = "userId INT, page STRING, eventTime TIMESTAMP, browser STRING"


def visits_per_browser(visits: DataFrame, window: str) -> DataFrame:
    """One row for each browser and window: the visits, and the last of them."""
    return visits.groupBy("browser", F.window("eventTime", window)).agg(
        F.count("*").alias("count"), F.max("eventTime").alias("last_event_time_in_window")
    )
