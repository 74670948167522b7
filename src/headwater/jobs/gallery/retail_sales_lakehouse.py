"""Totals per store and window in a Delta table, from the Delta table that retail-sales-bronze fills.

A batch emits the windows that its sales changed, and MERGE replaces their rows in the table. A late sale corrects a window
that is already there, as long as the watermark has not passed it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Delta, Job

BRONZE = "store STRING, counter INT, amount BIGINT, sold_at TIMESTAMP, day DATE"


def retail_sales_lakehouse(sales: DataFrame, *, window: str = "15 minutes", watermark: str = "1 hour") -> DataFrame:
    """Sales and receipts per store and window of event time."""
    in_time = sales.withWatermark("sold_at", watermark)
    totals = in_time.groupBy("store", F.window("sold_at", window))
    return totals.agg(F.sum("amount").alias("sales"), F.count("*").alias("receipts"))


RETAIL_SALES_LAKEHOUSE = Job(
    "retail-sales-lakehouse",
    retail_sales_lakehouse,
    reads=Delta("data/lake/sales_bronze", schema=BRONZE),
    writes=Delta("data/lake/sales_totals", merge_on="store,window"),
    mode="update",
)
