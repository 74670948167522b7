"""Impressions of ads joined with their clicks: a click counts if it follows its impression within an hour.

The state holds the impressions that can still be clicked, and clicks whose impression has not arrived yet. A click emits a
row at once. An impression without a click is emitted when the watermark has passed the end of its hour, because until
then a click may still arrive. The watermark is that of the slower stream: while one of them is silent, nothing expires.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Job, Kafka


def ad_attribution(
    impressions: DataFrame, clicks: DataFrame, *, within: str = "1 hour", watermark: str = "10 minutes"
) -> DataFrame:
    """Each impression with its clicks, or with none once it can no longer be clicked."""
    shown = impressions.withWatermark("shown_at", watermark).alias("shown")
    clicked = clicks.withWatermark("clicked_at", watermark).alias("clicked")
    same = F.col("shown.impression") == F.col("clicked.impression")
    in_time = F.col("clicked_at").between(F.col("shown_at"), F.col("shown_at") + F.expr(f"INTERVAL '{within}'"))
    attributed = shown.join(clicked, same & in_time, "left_outer")
    return attributed.select("shown.impression", "ad", "shown_at", "clicked_at")


AD_ATTRIBUTION = Job(
    "ad-attribution",
    ad_attribution,
    reads={
        "impressions": Kafka("impressions", schema="impression STRING, ad STRING, shown_at TIMESTAMP"),
        "clicks": Kafka("clicks", schema="impression STRING, clicked_at TIMESTAMP"),
    },
    writes=Kafka("ad-attribution", key="impression"),
    mode="append",
)
