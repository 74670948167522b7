"""Profit per 5-minute window and id: a second grouping column, and so a second part of the state's key."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Job
from headwater.jobs.gallery._records import TRADES, with_profit


def profit_per_id(trades: DataFrame, *, window: str = "5 minutes") -> DataFrame:
    """Profit per id and tumbling window."""
    return with_profit(trades).groupBy(F.window("eventtime", window), "id").agg(F.sum("profit").alias("profit"))


PROFIT_PER_ID = Job("profit-per-id", profit_per_id, reads=TRADES, writes=Console(), mode="complete")
