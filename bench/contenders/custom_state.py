"""Running totals in custom state, written as in Spark's guide to ``transformWithState``.

``--form`` is ``rows`` or ``pandas``. ``--settings`` is one of

- ``spark``: Spark's defaults, with the state store that custom state needs,
- ``headwater``: Headwater's session settings with PySpark's Python workers,
- ``headwater-workers``: Headwater's session settings and Python workers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

options = argparse.ArgumentParser()
options.add_argument("--bootstrap", required=True)
options.add_argument("--topic", required=True)
options.add_argument("--out", required=True)
options.add_argument("--checkpoint", required=True)
options.add_argument("--max-offsets", required=True)
options.add_argument("--form", choices=["rows", "pandas"], required=True)
options.add_argument("--settings", choices=["spark", "headwater", "headwater-workers"], required=True)
options.add_argument("--jars", required=True)
chosen = options.parse_args()


class TotalOfRows(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += row.shopping
        self.total.update((total,))
        yield Row(user=key[0], total=total)

    def close(self) -> None:
        pass


class TotalOfFrames(TotalOfRows):
    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        total = self.total.get()[0] if self.total.exists() else 0
        for frame in rows:
            total += int(frame["shopping"].sum())
        self.total.update((total,))
        yield pd.DataFrame({"user": [key[0]], "total": [total]})


def create_session() -> SparkSession:
    if chosen.settings.startswith("headwater"):
        from headwater.spark.session import start_session

        workers = {} if chosen.settings == "headwater-workers" else {"spark.python.daemon.module": "pyspark.daemon"}
        return start_session("totals", conf=workers, log=Path(chosen.checkpoint).with_suffix(".spark.log"))
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = SparkSession.builder.appName("totals").config("spark.jars", chosen.jars)
    return builder.config("spark.sql.streaming.stateStore.providerClass", store).getOrCreate()


spark = create_session()
purchase = F.from_json(
    F.col("value").cast("string"), "user STRING, shopping INT, date DATE", {"dateFormat": "dd-MM-yyyy"}
)
users = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", chosen.bootstrap)
    .option("subscribe", chosen.topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", chosen.max_offsets)
    .load()
    .select(purchase.alias("purchase"))
    .select("purchase.*")
    .groupBy("user")
)
shape = "user STRING, total BIGINT"
totals = (
    users.transformWithState(TotalOfRows(), shape, "Update", "None")
    if chosen.form == "rows"
    else users.transformWithStateInPandas(TotalOfFrames(), shape, "Update", "None")
)
query = (
    totals.select(F.col("user").alias("key"), F.to_json(F.struct("user", "total")).alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", chosen.bootstrap)
    .option("topic", chosen.out)
    .option("checkpointLocation", chosen.checkpoint)
    .outputMode("update")
    .trigger(availableNow=True)
)
query.start().awaitTermination()
spark.stop()
