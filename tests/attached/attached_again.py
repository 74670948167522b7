"""Attaches twice to one session, stops it, and attaches to the next one on the port that the first one has freed."""

import sys
import time
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

import headwater
from headwater.checkpoint.lease import live_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.spark.attach import Attachment

folder = sys.argv[1]
files = LocalTree(Path(folder, "checkpoint"))


def metrics(url: str | None) -> str:
    with urllib.request.urlopen(str(url), timeout=60) as answer:
        return answer.read().decode()


def recorded_query(spark: SparkSession, attached: Attachment) -> None:
    """Run a query until its record, its lease and its metrics are there."""
    writer = spark.readStream.format("rate").load().writeStream.format("noop").queryName("rates")
    query = writer.option("checkpointLocation", files.location).start()
    deadline = time.monotonic() + 240
    while 'headwater_batches_total{job="rates"}' not in metrics(attached.metrics_url) or not live_lease(files):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    query.stop()


first = SparkSession.builder.getOrCreate()
headwater.attach(first).detach()
attached = headwater.attach(first, metrics=0)
recorded_query(first, attached)
port = str(attached.metrics_url).rpartition(":")[2].partition("/")[0]
first.stop()
assert not attached.is_active

second = SparkSession.builder.getOrCreate()
again = headwater.attach(second, metrics=port)
assert again.is_active
assert attached.metrics_url is None
recorded_query(second, again)
second.stop()
deadline = time.monotonic() + 240
while again.metrics_url is not None or live_lease(files):
    assert time.monotonic() < deadline
    time.sleep(0.1)
