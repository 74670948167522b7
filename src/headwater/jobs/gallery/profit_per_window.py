"""Profit per 5-minute window: buying adds, selling subtracts.

Complete mode gives every window again after each batch and never lets one go, so a trade of any age is still counted.
A window without a trade does not exist.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Job
from headwater.jobs.gallery._trades import TRADES, profit


def profit_per_window(trades: DataFrame, *, window: str = "5 minutes") -> DataFrame:
    """Profit of all trades in each tumbling window."""
    return trades.groupBy(F.window("time", window)).agg(profit())


PROFIT_PER_WINDOW = Job("profit-per-window", profit_per_window, reads=TRADES, writes=Console(), mode="complete")
