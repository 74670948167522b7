"""Sessions of each user, closed after ten minutes without an order."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("user visits").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/orders")
)
query = (
    orders.withWatermark("at", "5 minutes")
    .groupBy("user", F.session_window("at", "10 minutes"))
    .agg(F.count("*").alias("orders"))
    .select("user", "session_window.start", "session_window.end", "orders")
    .writeStream.format("parquet")
    .option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
