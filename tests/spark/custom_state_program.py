"""A stream with every kind of custom state and several types of keys, run to its end. Prints its output as JSON.

``python custom_state_program.py FOLDER DAEMON_MODULE`` runs it with the Python workers of that module.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater.spark.session import start_session

BATCHES = 3
SCHEMA = (
    "text STRING, number BIGINT, day DATE, price DECIMAL(10,2), ratio DOUBLE, pair STRUCT<a: BIGINT, b: STRING>, "
    "at TIMESTAMP, n INT, size INT"
)
KEYS = {
    "text": 700,
    "text, number": 150,
    "day, price": 150,
    "ratio": 40,
    "pair": 40,
}


class Everything(StatefulProcessor):
    """Emits what it reads for each key, and then makes changes that depend on the first row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n BIGINT, text STRING, day DATE, ratio DOUBLE")
        self.other = handle.getValueState("other", "text STRING")
        self.rows = handle.getListState("rows", "n INT, ratio DOUBLE")
        self.sums = handle.getMapState("sums", "n INT", "sum BIGINT, day DATE")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Emit one row for each key, for some keys two."""
        if str(key).endswith("7',)"):
            return  # reads neither its rows nor the state
        key_rows = list(rows)
        first = key_rows[0]
        results = [self.count.exists(), self.count.get(), list(self.rows.get()), sorted(self.sums.iterator())]
        if first.n % 3 == 0:
            results.append(self.other.get())
        if first.n % 11 == 0:
            self.count.clear()
            results.append(self.count.exists())
        else:
            known = self.count.get()
            total = (known[0] if known else 0) + len(key_rows)
            self.count.update((total, first.text, first.day, first.ratio))
            results.append(self.count.get())
        self.other.update(("x" * first.size + str(first.n),))
        self.rows.appendValue((first.n, first.ratio))
        if first.n % 5 == 0:
            self.rows.put([(row.n, row.ratio) for row in key_rows])
        self.sums.updateValue((first.n % 4,), (first.n, first.day))
        if first.n % 7 == 0:
            self.sums.removeKey((first.n % 4,))
        results += [self.sums.containsKey((2,)), self.sums.getValue((2,)), len((self.other.get() or [""])[0])]
        self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 1_000 * (1 + first.n % 3))
        if first.n % 4 == 0:
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
        yield Row(key=repr(key), results=repr(results), rows=[Row(n=row.n, text=row.text) for row in key_rows])
        if first.n % 6 == 0:
            yield Row(key=repr(key), results=repr(list(self.handle.listTimers())), rows=None)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Emit the state of the key when its timer expires."""
        results = [expiredTimerInfo.getExpiryTimeInMs(), self.count.get(), list(self.rows.get())]
        self.rows.clear()
        yield Row(key=repr(key), results=repr(results), rows=[])


def generated_rows(batch: int, keys: int) -> list[tuple[Any, ...]]:
    """Return rows for ``keys`` keys: most keys have several rows, one is null, and a few have large values."""
    rows = []
    for n in range(keys * 2):
        k = (n * n + batch * 13) % keys
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=k % 50)
        ratio = float("nan") if k % 4 == 0 else k / 4
        pair = Row(a=k % 9, b=str(k % 5))
        at = datetime.datetime(2024, 1, 1, 0, batch, k % 60, tzinfo=datetime.UTC)
        text = None if k == 1 else f"key {k}"
        size = 200_000 if k % 50 == 3 else k % 10
        rows.append((text, k, day, Decimal(k % 7) / 4, ratio, pair, at, n, size))
    return rows


def run(spark: SparkSession, folder: Path, key: str, keys: int) -> list[tuple[int, str]]:
    """Run all batches through the processor, grouped by ``key``."""
    name = key.replace(", ", "-")
    source = folder / name
    output: list[tuple[int, str]] = []

    def collect(frame: DataFrame, batch: int) -> None:
        output.extend((batch, repr(row)) for row in frame.collect())

    for batch in range(BATCHES):
        spark.createDataFrame(generated_rows(batch, keys), SCHEMA).coalesce(1).write.mode("append").parquet(str(source))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    schema = "key STRING, results STRING, rows ARRAY<STRUCT<n: INT, text: STRING>>"
    grouped = stream.withWatermark("at", "0 seconds").groupBy(*key.split(", "))
    writer = grouped.transformWithState(Everything(), schema, "Append", "EventTime").writeStream.foreachBatch(collect)
    writer = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(output)


def run_all(spark: SparkSession, folder: Path, keys: dict[str, int]) -> dict[str, list[tuple[int, str]]]:
    """Return a list of (batch, row) for each type of key, given how many keys of it there are."""
    return {key: run(spark, folder, key, count) for key, count in keys.items()}


def main() -> None:
    """Print the output for every type of key."""
    folder, module = Path(sys.argv[1]), sys.argv[2]
    spark = start_session(
        "everything",
        master="local[2]",
        conf={"spark.python.daemon.module": module, "spark.sql.shuffle.partitions": "2"},
        jars=(),
        log=folder / "spark.log",
    )
    print(json.dumps(run_all(spark, folder, KEYS)))
    spark.stop()


if __name__ == "__main__":
    main()
