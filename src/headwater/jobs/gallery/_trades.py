"""What the three profit jobs share: the trades, and what a trade adds to the profit."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater import Kafka

TRADES = Kafka(
    "spark-stream-05",
    schema="id STRING, amount INT, type STRING, time TIMESTAMP",
    decode={"timestampFormat": "dd-MM-yyyy-HH-mm"},
)


def profit() -> Column:
    """Buying adds the amount, selling subtracts it, any other type of trade leaves the profit alone."""
    signed = F.when(F.col("type") == "buy", F.col("amount")).when(F.col("type") == "sell", -F.col("amount"))
    return F.sum(signed.otherwise(0)).alias("profit")
