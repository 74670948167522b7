"""A union of two sources, to a table."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("all movements").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/orders")
)
payments = (
    spark.readStream.schema("order_id INT, paid_at TIMESTAMP, method STRING")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/payments")
)
query = (
    orders.select("id", F.lit("order").alias("kind"))
    .union(payments.select("order_id", F.lit("payment")))
    .writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    .option("path", f"{folder}/out")
    .trigger(availableNow=True)
    .toTable(f"movements_{Path(folder).name}", format="parquet")
)
query.awaitTermination()
