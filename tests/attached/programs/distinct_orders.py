"""Duplicates dropped within the watermark, to JSON files."""

import sys

from pyspark.sql import SparkSession

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("distinct orders").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/orders")
)
query = (
    orders.withWatermark("at", "1 hour")
    .dropDuplicatesWithinWatermark(["id"])
    .select("id", "user", "amount")
    .writeStream.format("json")
    .option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
