"""Custom state in Python: the running total of each user."""

import sys
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import headwater

folder = sys.argv[1]
spark = SparkSession.builder.appName("running totals").getOrCreate()
headwater.attach(spark)
orders = (
    spark.readStream.schema("id INT, user STRING, at TIMESTAMP, amount INT")
    .option("maxFilesPerTrigger", 1)
    .json(f"{folder}/orders")
)


def add(key: tuple[str], rows: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    total = state.get[0] if state.exists else 0
    total += int(sum(frame["amount"].sum() for frame in rows))
    state.update((total,))
    yield pd.DataFrame({"user": [key[0]], "total": [total]})


query = (
    orders.groupBy("user")
    .applyInPandasWithState(add, "user STRING, total LONG", "total LONG", "append", GroupStateTimeout.NoTimeout)
    .writeStream.format("csv")
    .option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
