"""A job of the stories: visits of a site and of an app, each with a watermark of its own, counted together."""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Job, Kafka
from headwater.jobs.gallery._records import VISIT, visits_per_browser


def united_visits(web: DataFrame, app: DataFrame) -> DataFrame:
    """Visits per browser and window of both sources."""
    both = web.withWatermark("eventTime", "20 minutes").union(app.withWatermark("eventTime", "20 minutes"))
    return visits_per_browser(both, "5 minutes")


JOB = Job(
    "united-visits",
    united_visits,
    reads={"web": Kafka("web", schema=VISIT), "app": Kafka("app", schema=VISIT)},
    writes=Kafka("united-visits", key="browser"),
    mode="update",
)
