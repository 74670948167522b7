"""Sold items, joined with a table of products that changes while the job runs.

The table is read in each batch, so a new price counts from the next batch on. Amounts that were added before stay as they
are: the state holds sums, not sales. An item whose product is not in the table is counted as ``unknown``, at no price.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Files, Job, Kafka, Static

ITEM = "store STRING, product STRING, quantity INT, sold_at TIMESTAMP"
PRODUCT = "product STRING, name STRING, category STRING, price BIGINT"


def enriched_sales(
    items: DataFrame,
    products: DataFrame,
    *,
    per: str = "category",
    window: str = "15 minutes",
    watermark: str = "1 hour",
) -> DataFrame:
    """Units and revenue per product category and window, or with per=item each item with its product and price."""
    sold = items.withWatermark("sold_at", watermark).join(products, "product", "left")
    sold = sold.withColumn("category", F.coalesce("category", F.lit("unknown")))
    revenue = F.col("quantity") * F.coalesce("price", F.lit(0))
    if per == "item":
        return sold.select("sold_at", "store", "product", "name", "category", "quantity", revenue.alias("revenue"))
    if per == "category":
        totals = sold.groupBy("category", F.window("sold_at", window))
        return totals.agg(F.sum("quantity").alias("units"), F.sum(revenue).alias("revenue"))
    raise ValueError(f"per={per!r}: use category or item")


ENRICHED_SALES = Job(
    "enriched-sales",
    enriched_sales,
    reads={
        "items": Kafka("items", schema=ITEM),
        "products": Static(Files("data/products", schema=PRODUCT), refresh="batch"),
    },
    writes=Kafka("enriched-sales", key="category"),
    mode="update",
)
