"""Kafka to Kafka, keyed by user."""

import sys

from pyspark.sql import SparkSession

import headwater

folder, servers, topic = sys.argv[1:]
spark = SparkSession.builder.appName("forwarded orders").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 2)
    .load()
)
query = (
    orders.selectExpr("get_json_object(CAST(value AS STRING), '$.user') AS key", "value")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", f"{topic}-forwarded")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .queryName("forwarded-orders")
    .start()
)
query.awaitTermination()
