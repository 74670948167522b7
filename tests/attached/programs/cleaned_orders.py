"""Stateless: valid orders from JSON files to Parquet."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("cleaned orders").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .option("pathGlobFilter", "*.json")
    .json(f"{folder}/orders")
)
query = (
    orders.where("amount > 0")
    .select("id", F.upper("user").alias("user"), "amount")
    .writeStream.format("parquet")
    .option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
