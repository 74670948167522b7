"""Append mode: each window is written to Parquet once, when the watermark has passed it."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("closed windows").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/orders")
)
query = (
    orders.withWatermark("at", "5 minutes")
    .groupBy(F.window("at", "10 minutes"), "user")
    .agg(F.sum("amount").alias("total"))
    .select("window.start", "user", "total")
    .writeStream.outputMode("append")
    .format("parquet")
    .option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
