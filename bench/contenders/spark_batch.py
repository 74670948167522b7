"""Browser statistics as one batch job over the same records, with Spark's defaults: no stream and no state."""

from __future__ import annotations

import argparse
import json
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

options = argparse.ArgumentParser()
options.add_argument("--bootstrap", required=True)
options.add_argument("--topic", required=True)
options.add_argument("--out", required=True)
options.add_argument("--jars", required=True)
chosen = options.parse_args()

spark = SparkSession.builder.appName("browser statistics").config("spark.jars", chosen.jars).getOrCreate()
ready_at = time.time()
raw = spark.read.format("kafka").options(
    **{"kafka.bootstrap.servers": chosen.bootstrap, "subscribe": chosen.topic, "startingOffsets": "earliest"}
)
visit = F.from_json(F.col("value").cast("string"), "userId INT, page STRING, eventTime TIMESTAMP, browser STRING")
stats = (
    raw.load()
    .select(visit.alias("visit"))
    .select("visit.*")
    .groupBy("browser", F.window("eventTime", "5 minutes"))
    .agg(F.count("*").alias("count"), F.max("eventTime").alias("last_event_time_in_window"))
)
records = stats.select(F.col("browser").alias("key"), F.to_json(F.struct("*")).alias("value"))
records.write.format("kafka").options(**{"kafka.bootstrap.servers": chosen.bootstrap, "topic": chosen.out}).save()
done_at = time.time()
spark.stop()
print(json.dumps({"ready_at": ready_at, "done_at": done_at}))
