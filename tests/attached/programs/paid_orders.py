"""Two streams joined: orders with their payments, within an hour."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("paid orders").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/orders")
    .withWatermark("at", "1 hour")
)
payments = (
    spark.readStream.schema("order_id INT, paid_at TIMESTAMP, method STRING")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/payments")
    .withWatermark("paid_at", "1 hour")
)
in_time = F.expr("id = order_id AND paid_at BETWEEN at AND at + INTERVAL 1 HOUR")
query = (
    orders.join(payments, in_time)
    .select("id", "user", "amount", "method")
    .writeStream.format("parquet")
    .option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
