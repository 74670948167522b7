"""Running totals in custom state, written as in Spark's guide to ``transformWithState``.

``--form`` is ``rows`` or ``pandas`` for a total in a value, or another way to arrive at the same total:

- ``list``: a list of all amounts, to which each purchase is appended,
- ``map``: a map from price bands to amounts,
- ``timers``: a value, and a timer for each user that every batch moves,
- ``ttl``: a value with a time to live.

``--settings`` is one of

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
options.add_argument("--form", choices=["rows", "pandas", "list", "map", "timers", "ttl"], required=True)
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


class TotalOfList(TotalOfRows):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.amounts = handle.getListState("amounts", "amount BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        for row in rows:
            self.amounts.appendValue((row.shopping,))
        yield Row(user=key[0], total=sum(amount for (amount,) in self.amounts.get()))


class TotalOfMap(TotalOfRows):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.bands = handle.getMapState("bands", "band INT", "amount BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        for row in rows:
            band = (row.shopping // 250,)
            amount = self.bands.getValue(band)[0] if self.bands.containsKey(band) else 0
            self.bands.updateValue(band, (amount + row.shopping,))
        yield Row(user=key[0], total=sum(amount for (amount,) in self.bands.values()))


class TotalWithTimer(TotalOfRows):
    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
        yield from super().handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        self.total.clear()
        yield Row(user=key[0], total=0)


class TotalWithTimeToLive(TotalOfRows):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total BIGINT", ttlDurationMs=3_600_000)


PROCESSORS = {
    "rows": (TotalOfRows, "None"),
    "list": (TotalOfList, "None"),
    "map": (TotalOfMap, "None"),
    "timers": (TotalWithTimer, "ProcessingTime"),
    "ttl": (TotalWithTimeToLive, "ProcessingTime"),
}


def create_session() -> SparkSession:
    if chosen.settings.startswith("headwater"):
        from headwater.spark.session import start_session

        workers = {} if chosen.settings == "headwater-workers" else {"spark.python.daemon.module": "pyspark.daemon"}
        return start_session("totals", conf=workers, log=Path(chosen.checkpoint).with_suffix(".spark.log"))
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = SparkSession.builder.appName("totals").config("spark.jars", chosen.jars)
    return builder.config("spark.sql.streaming.stateStore.providerClass", store).getOrCreate()


spark = create_session()
# With timers on the clock, Spark would run batches without data forever.
spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
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
if chosen.form == "pandas":
    totals = users.transformWithStateInPandas(TotalOfFrames(), shape, "Update", "None")
else:
    processor, time_mode = PROCESSORS[chosen.form]
    totals = users.transformWithState(processor(), shape, "Update", time_mode)
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
