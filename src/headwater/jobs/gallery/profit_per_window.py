"""Profit per 5-minute window: ``sell`` subtracts its amount from the profit, ``buy`` and any other type add it.

Complete mode emits every window after each batch and never evicts one, so a trade of any age is still counted. Windows
without trades are not in the result.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Job
from headwater.jobs.gallery._records import TRADES, with_profit


def profit_per_window(trades: DataFrame, *, window: str = "5 minutes") -> DataFrame:
    """Profit of all trades per tumbling window."""
    return with_profit(trades).groupBy(F.window("eventtime", window)).agg(F.sum("profit").alias("profit"))


PROFIT_PER_WINDOW = Job("profit-per-window", profit_per_window, reads=TRADES, writes=Console(), mode="complete")
