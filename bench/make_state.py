"""Write a checkpoint with Spark: all keys in one batch, then small batches of a thousand keys, with snapshots in between."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

STATE = "spark.sql.streaming.stateStore"
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    f"{STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STATE}.minDeltasForSnapshot": "5",
    f"{STATE}.maintenanceInterval": "300ms",
}
folder, keys, small_batches = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
shutil.rmtree(folder, ignore_errors=True)
builder = SparkSession.builder.master("local[*]")
for name, value in CONF.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
later = [(keys - 500 + 10 * number, keys + 500 + 10 * number) for number in range(small_batches)]
for number, (first, end) in enumerate([(0, keys), *later]):
    rows = spark.range(first, end).select(
        F.timestamp_seconds(F.lit(1714557600) + (F.col("id") % 50) * 600).alias("at"),
        F.concat(F.lit("user-"), F.col("id").cast("string")).alias("user"),
    )
    rows.coalesce(1).write.parquet(str(folder / "input" / str(number)))
files = spark.readStream.schema("at timestamp, user string").option("maxFilesPerTrigger", 1)
visits = files.option("recursiveFileLookup", True).parquet(str(folder / "input")).withWatermark("at", "10 days")
counted = visits.groupBy(F.window("at", "10 minutes"), "user").agg(
    F.count("*").alias("visits"), F.max("at").alias("last")
)
query = counted.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(folder / "checkpoint"))
query.trigger(availableNow=True).start().awaitTermination()
