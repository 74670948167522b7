"""Sales as they land in files, kept in a Delta table: the first of two jobs that feed each other.

Each batch is one commit of the table. ``scale`` converts amounts: 1 if the files have the unit of the table.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Delta, Files, Job

SALE = "store STRING, counter INT, amount BIGINT, sold_at TIMESTAMP"


def retail_sales_bronze(sales: DataFrame, *, scale: int = 1) -> DataFrame:
    """Every sale with its day, in the unit of the table."""
    amount = (F.col("amount") * scale).alias("amount")
    return sales.select("store", "counter", amount, "sold_at", F.to_date("sold_at").alias("day"))


RETAIL_SALES_BRONZE = Job(
    "retail-sales-bronze",
    retail_sales_bronze,
    reads=Files("data/sales", schema=SALE, options={"maxFilesPerTrigger": "1"}),
    writes=Delta("data/lake/sales_bronze", partition_by="day"),
)
