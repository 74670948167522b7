"""Counts per key, one file per batch, with Spark's defaults."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count, struct, to_json

options = argparse.ArgumentParser()
options.add_argument("--folder", required=True)
options.add_argument("--bootstrap", required=True)
options.add_argument("--out", required=True)
options.add_argument("--checkpoint", required=True)
options.add_argument("--jars", required=True)
chosen = options.parse_args()

spark = SparkSession.builder.appName("key counts").config("spark.jars", chosen.jars).getOrCreate()
rows = spark.readStream.schema("key STRING").option("maxFilesPerTrigger", 1).json(chosen.folder)
counts = rows.groupBy("key").agg(count("*").alias("count"))
query = (
    counts.select(col("key"), to_json(struct("*")).alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", chosen.bootstrap)
    .option("topic", chosen.out)
    .option("checkpointLocation", chosen.checkpoint)
    .outputMode("update")
    .trigger(availableNow=True)
)
query.start().awaitTermination()
