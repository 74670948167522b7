"""Update mode: totals per window, written by foreachBatch to one file per batch."""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("window totals").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/orders")
)


def save(rows: DataFrame, batch_id: int) -> None:
    lines = sorted(row.line for row in rows.select(F.to_json(F.struct("*")).alias("line")).collect())
    out = Path(folder, "out")
    out.mkdir(exist_ok=True)
    (out / f"{batch_id}.json").write_text("\n".join(lines))


query = (
    orders.withWatermark("at", "10 minutes")
    .groupBy(F.window("at", "10 minutes"))
    .agg(F.sum("amount").alias("total"))
    .writeStream.outputMode("update")
    .foreachBatch(save)
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .queryName("window-totals")
    .start()
)
query.awaitTermination()
