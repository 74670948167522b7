"""Sales of all billing counters, from files that arrive every 15 minutes.

``per=total`` is a single number over all sales. ``per=window`` is a number per 15 minutes of *event time*: a sale made
at 10:08 counts in the window of 10:00, even if its file arrives at 10:20.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Files, Job

SALE = "store STRING, counter INT, amount BIGINT, sold_at TIMESTAMP"


def retail_sales(
    sales: DataFrame, *, per: str = "window", window: str = "15 minutes", watermark: str = "1 hour"
) -> DataFrame:
    """Sales per window of event time, or with per=total over all sales."""
    if per == "total":
        return sales.agg(F.sum("amount").alias("total"))
    if per == "window":
        in_time = sales.withWatermark("sold_at", watermark)
        return in_time.groupBy(F.window("sold_at", window)).agg(F.sum("amount").alias("sales"))
    raise ValueError(f"per={per!r}: use window or total")


RETAIL_SALES = Job(
    "retail-sales", retail_sales, reads=Files("data/sales", schema=SALE), writes=Console(), mode="update"
)
