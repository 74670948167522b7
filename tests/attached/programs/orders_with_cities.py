"""A stream joined with a static table, partitioned by city."""

import sys

from pyspark.sql import SparkSession

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("orders with cities").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/orders")
)
users = spark.read.schema("user STRING, city STRING").json(f"{folder}/users.json")
query = (
    orders.join(users, "user", "left")
    .select("id", "user", "amount", "city")
    .writeStream.format("parquet")
    .partitionBy("city")
    .option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
