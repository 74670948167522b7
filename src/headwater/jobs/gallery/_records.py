"""Records that several jobs of the gallery read, and the aggregations that these jobs share."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater import Kafka

VISIT = "userId INT, page STRING, eventTime TIMESTAMP, browser STRING"

PURCHASES = Kafka("purchases", schema="user STRING, shopping INT, date DATE", decode={"dateFormat": "dd-MM-yyyy"})

TRADES = Kafka(
    "spark-stream-05",
    schema="id STRING, amount INT, type STRING, time TIMESTAMP",
    decode={"timestampFormat": "dd-MM-yyyy-HH-mm"},
)


def visits_per_browser(visits: DataFrame, window: str) -> DataFrame:
    """Count visits per browser and window, with the time of the last one."""
    return visits.groupBy("browser", F.window("eventTime", window)).agg(
        F.count("*").alias("count"), F.max("eventTime").alias("last_event_time_in_window")
    )


def profit() -> Column:
    """Sum the amounts of trades: ``buy`` adds the amount, ``sell`` subtracts it, any other type counts as zero."""
    signed = F.when(F.col("type") == "buy", F.col("amount")).when(F.col("type") == "sell", -F.col("amount"))
    return F.sum(signed.otherwise(0)).alias("profit")
