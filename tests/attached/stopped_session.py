"""Stops a session while a query runs; its lease is released although the JVM lives on."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import headwater
from headwater.checkpoint.lease import live_lease
from headwater.checkpoint.local_tree import LocalTree

folder = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
headwater.attach(spark)
writer = spark.readStream.format("rate").load().writeStream.format("noop")
query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
files = LocalTree(Path(folder, "checkpoint"))
assert live_lease(files)
spark.stop()
deadline = time.monotonic() + 240
while live_lease(files):
    assert time.monotonic() < deadline
    time.sleep(0.1)
