"""Each user's total by Spark's own aggregation: what custom state is held against."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Job, Kafka


def native_totals(purchases: DataFrame) -> DataFrame:
    """The sum of everything that each user bought."""
    return purchases.groupBy("user").agg(F.sum("shopping").alias("total"))


NATIVE_TOTALS = Job(
    "native-totals",
    native_totals,
    reads=Kafka("purchases", schema="user STRING, shopping INT, date DATE", decode={"dateFormat": "dd-MM-yyyy"}),
    writes=Kafka("native-totals", key="user"),
    mode="update",
)
