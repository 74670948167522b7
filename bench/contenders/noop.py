"""Read the topic into Spark's noop sink, with or without decoding: an upper limit for any Spark stream.

The session has Headwater's settings. With ``--tuned``, the Kafka consumer has Headwater's options as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import functions as F

from headwater.spark.reading import CONSUMER_OPTIONS
from headwater.spark.session import start_session

options = argparse.ArgumentParser()
options.add_argument("--bootstrap", required=True)
options.add_argument("--topic", required=True)
options.add_argument("--checkpoint", required=True)
options.add_argument("--decode", action="store_true")
options.add_argument("--tuned", action="store_true")
chosen = options.parse_args()

spark = start_session("noop", log=Path(chosen.checkpoint).with_suffix(".spark.log"))
rows = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", chosen.bootstrap)
    .option("subscribe", chosen.topic)
    .option("startingOffsets", "earliest")
    .options(**(CONSUMER_OPTIONS if chosen.tuned else {}))
    .load()
)
if chosen.decode:
    schema = "userId INT, page STRING, eventTime TIMESTAMP, browser STRING"
    rows = rows.select(F.from_json(F.col("value").cast("string"), schema).alias("visit")).select("visit.*")
query = rows.writeStream.format("noop").option("checkpointLocation", chosen.checkpoint).trigger(availableNow=True)
query.start().awaitTermination()
spark.stop()
