"""Profit per 10-minute window, with a new window every 5 minutes: each trade counts in two windows.

A trade is added to the state of both windows, so the size of the state grows with window / slide.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Job
from headwater.jobs.gallery._records import TRADES, with_profit


def profit_sliding(trades: DataFrame, *, window: str = "10 minutes", slide: str = "5 minutes") -> DataFrame:
    """Profit of all trades per sliding window."""
    return with_profit(trades).groupBy(F.window("eventtime", window, slide)).agg(F.sum("profit").alias("profit"))


PROFIT_SLIDING = Job("profit-sliding", profit_sliding, reads=TRADES, writes=Console(), mode="complete")
