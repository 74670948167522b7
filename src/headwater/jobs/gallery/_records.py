"""Records that several jobs of the gallery read, and the steps that these jobs share."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Kafka

VISIT = "userId INT, page STRING, eventTime TIMESTAMP, browser STRING"

PURCHASES = Kafka("purchases", schema="user STRING, shopping INT, date DATE", decode={"dateFormat": "dd-MM-yyyy"})

TRADE_TIME = "dd-MM-yyyy-HH-mm"
# The source parses the time, so that a trade with an invalid one is counted as malformed.
TRADES = Kafka(
    "spark-stream-05",
    schema="id STRING, amount INT, type STRING, time TIMESTAMP",
    decode={"timestampFormat": TRADE_TIME, "allowTrailingComma": "true"},
)


def visits_per_browser(visits: DataFrame, window: str) -> DataFrame:
    """Count visits per browser and window, with the time of the last one."""
    return visits.groupBy("browser", F.window("eventTime", window)).agg(
        F.count("*").alias("count"), F.max("eventTime").alias("last_event_time_in_window")
    )


def with_profit(trades: DataFrame) -> DataFrame:
    """Return the columns ``id``, ``type``, ``amount``, ``eventtime`` and ``profit`` of trades.

    ``profit`` is -amount for a ``sell`` and amount for any other type. ``time`` becomes ``eventtime``: it is a timestamp,
    or text such as ``20-04-2020-10-10``; text in another form becomes null.
    """
    # -amount would stop the stream at the smallest INT, which has no positive counterpart.
    negative = F.try_subtract(F.lit(0), F.col("amount"))
    return trades.select(
        "id",
        "type",
        "amount",
        F.try_to_timestamp("time", F.lit(TRADE_TIME)).alias("eventtime"),
        F.when(F.col("type") == "sell", negative).otherwise(F.col("amount")).alias("profit"),
    )
