"""Sales of all billing counters, from files that land every 15 minutes.

``per=total`` is one number over everything, ``per=window`` a number for each 15 minutes *in which the sale was made*:
a sale of 10:08 in the file of 10:20 belongs to the window of 10:00.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Files, Job

SALE = "store STRING, counter INT, amount BIGINT, sold_at TIMESTAMP"


def retail_sales(
    sales: DataFrame, *, per: str = "window", window: str = "15 minutes", watermark: str = "1 hour"
) -> DataFrame:
    """Sales in each window of event time, or with per=total over everything."""
    if per == "total":
        return sales.agg(F.sum("amount").alias("total"))
    if per == "window":
        in_time = sales.withWatermark("sold_at", watermark)
        return in_time.groupBy(F.window("sold_at", window)).agg(F.sum("amount").alias("sales"))
    raise ValueError(f"per={per!r}: window or total is wanted")


RETAIL_SALES = Job(
    "retail-sales", retail_sales, reads=Files("data/sales", schema=SALE), writes=Console(), mode="update"
)
