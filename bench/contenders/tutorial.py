"""Browser statistics as a PySpark tutorial would write them, with Spark's default settings."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, from_json, max, struct, to_json, window

options = argparse.ArgumentParser()
options.add_argument("--bootstrap", required=True)
options.add_argument("--topic", required=True)
options.add_argument("--out", required=True)
options.add_argument("--checkpoint", required=True)
options.add_argument("--jars", required=True)
options.add_argument("--max-offsets")
options.add_argument("--forever", action="store_true")
chosen = options.parse_args()

spark = SparkSession.builder.appName("browser statistics").config("spark.jars", chosen.jars).getOrCreate()

lines = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", chosen.bootstrap)
    .option("subscribe", chosen.topic)
    .option("startingOffsets", "earliest")
)
if chosen.max_offsets:
    lines = lines.option("maxOffsetsPerTrigger", chosen.max_offsets)

visits = (
    lines.load()
    .select(
        from_json(col("value").cast("string"), "userId INT, page STRING, eventTime TIMESTAMP, browser STRING").alias(
            "visit"
        )
    )
    .select("visit.*")
)

stats = (
    visits.withWatermark("eventTime", "20 minutes")
    .groupBy("browser", window("eventTime", "5 minutes"))
    .agg(count("*").alias("count"), max("eventTime").alias("last_event_time_in_window"))
)

query = (
    stats.select(col("browser").alias("key"), to_json(struct("*")).alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", chosen.bootstrap)
    .option("topic", chosen.out)
    .option("checkpointLocation", chosen.checkpoint)
    .outputMode("update")
)
if not chosen.forever:
    query = query.trigger(availableNow=True)
query.start().awaitTermination()
