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

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater import Checkpoint
from headwater.spark.session import start_session, temporary_settings

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


class Corners(StatefulProcessor):
    """Time to live, processing-time timers, order of maps, large and nested variables, and values that Spark converts."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.kept = handle.getValueState("kept", "n BIGINT, at TIMESTAMP, day DATE, ok BOOLEAN", 3_600_000)
        self.expired = handle.getValueState("expired", "n BIGINT", 1)
        self.expired_list = handle.getListState("expired_list", "text STRING", 1)
        self.kept_list = handle.getListState("kept_list", "n SMALLINT, b TINYINT", 3_600_000)
        self.kept_map = handle.getMapState("kept_map", "text STRING, n INT", "total BIGINT", 3_600_000)
        self.expired_map = handle.getMapState("expired_map", "n INT", "text STRING", 1)
        self.ratios = handle.getMapState("ratios", "ratio DOUBLE", "ratio FLOAT, raw BINARY")
        self.nested = handle.getValueState(
            "nested", "pair STRUCT<a: BIGINT, b: STRING>, all ARRAY<INT>, price DECIMAL(9,3)"
        )
        self.large = handle.getListState("large", "text STRING")
        self.many = handle.getMapState("many", "n BIGINT", "text STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Emit what each variable holds before and after changes."""
        key_rows = list(rows)
        first = key_rows[0]
        results: list[Any] = [self.snapshot()]
        self.kept.update((first.n, first.at, None if first.n % 2 else first.day, first.n % 3 == 0))
        self.expired.update((first.n,))
        self.expired_list.appendList([("a",), (None,)])
        self.kept_list.appendValue((first.n % 100, None))
        self.kept_list.appendList([(1, 2), (first.n % 50, 3)])
        for row in reversed(key_rows):
            self.kept_map.updateValue((row.text, row.n), (row.n,))
        self.kept_map.updateValue(("é", 1), (np.int64(first.n),))
        self.expired_map.updateValue((1,), ("x",))
        self.ratios.updateValue((first.ratio,), (0.1, bytes(3)))
        self.ratios.updateValue((-0.0 if first.n % 2 else 0.0,), (1.5, None))
        self.nested.update((first.pair, [1, None, first.n], first.price))
        entries = self.kept_map.keys()
        before = next(entries)
        self.kept_map.removeKey(before)
        results += [before, len(list(entries)), self.kept_map.containsKey(before), self.snapshot()]
        if first.n % 5 == 0:
            self.large.appendList([("y" * 2_000,)] * 20)
            for number in range(0, 1_500, 3):
                self.many.updateValue((number,), (str(first.n) * 20,))
            self.many.removeKey((6,))
        results += [sum(len(text) for (text,) in self.large.get()), self.large.exists()]
        results += [
            self.many.exists(),
            self.many.getValue((3,)),
            self.many.getValue((6,)),
            len(list(self.many.values())),
        ]
        # Spark has the last word on these: a number that is too large, one of another type, a wrong type.
        self.kept_list.put([(70_000, 1), (np.int16(7), True), ("text", 2)])
        self.expired.update((2**70 if first.n % 9 == 0 else 1.5,))  # type: ignore[arg-type]
        results += [list(self.kept_list.get()), self.expired.get(), self.kept_list.exists()]
        if first.n % 4 == 0:
            self.kept_map.clear()
            self.nested.clear()
            results += [list(self.kept_map.iterator()), self.kept_map.exists(), self.nested.get(), self.nested.exists()]
            self.kept_map.updateValue(("after", first.n), (1,))
        now = timerValues.getCurrentProcessingTimeInMs()
        for timer in (2, 1, 3_600_000):
            self.handle.registerTimer(now + timer)
        self.handle.deleteTimer(now + 3_600_000)
        # Spark lists timers in the order of their lowest byte, which the clock decides.
        results.append(sorted(timer - now for timer in self.handle.listTimers() if timer >= now))
        yield Row(key=repr(key), results=repr(results), rows=None)

    def snapshot(self) -> list[Any]:
        values = [variable.get() for variable in (self.kept, self.expired, self.nested)]
        lists = [list(variable.get()) for variable in (self.kept_list, self.expired_list)]
        maps = [list(variable.iterator()) for variable in (self.kept_map, self.expired_map, self.ratios)]
        exist = [
            variable.exists()
            for variable in (self.kept, self.expired, self.kept_list, self.expired_list, self.kept_map)
        ]
        return [*values, *lists, *maps, *exist, list(self.ratios.keys()), list(self.ratios.values())]

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Count the timers of a key in its state: a second timer sees what the first one has changed."""
        count = self.kept_map.getValue(("timers", 0))
        self.kept_map.updateValue(("timers", 0), ((count[0] if count else 0) + 1,))
        others = len(list(self.handle.listTimers()))
        yield Row(key=repr(key), results=repr([count, count.total if count else None, others]), rows=[])


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


def run(spark: SparkSession, folder: Path, key: str, keys: int, *, corners: bool = False) -> list[tuple[int, str]]:
    """Run all batches through a processor, grouped by ``key``. The last rows are the state in the checkpoint."""
    name = key.replace(", ", "-") + ("-corners" if corners else "")
    source = folder / name
    output: list[tuple[int, str]] = []

    def collect(frame: DataFrame, batch: int) -> None:
        output.extend((batch, repr(row)) for row in frame.collect())

    for batch in range(BATCHES):
        spark.createDataFrame(generated_rows(batch, keys), SCHEMA).coalesce(1).write.mode("append").parquet(str(source))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    schema = "key STRING, results STRING, rows ARRAY<STRUCT<n: INT, text: STRING>>"
    grouped = stream.withWatermark("at", "0 seconds").groupBy(*key.split(", "))
    processed = (
        grouped.transformWithState(Corners(), schema, "Append", "ProcessingTime")
        if corners
        else grouped.transformWithState(Everything(), schema, "Append", "EventTime")
    )
    checkpoint = folder / f"{name}-checkpoint"
    writer = processed.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    # With timers on the clock, Spark would run batches without data forever.
    with temporary_settings(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": str(not corners).lower()}):
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    return sorted(output) + sorted((-1, row) for row in state_in(checkpoint, corners=corners))


def state_in(checkpoint: Path, *, corners: bool) -> Iterator[str]:
    """Yield the state's rows; with a time to live, without the times at which they expire."""
    names = ["nested", "ratios", "large", "many"] if corners else ["count", "other", "rows", "sums"]
    for name in names:
        yield from (f"{name} {row}" for row in Checkpoint(checkpoint).state(var=name).to_pylist())


def run_all(spark: SparkSession, folder: Path, keys: dict[str, int]) -> dict[str, list[tuple[int, str]]]:
    """Return a list of (batch, row) for each type of key, given how many keys of it there are."""
    first = next(iter(keys))
    return {
        **{key: run(spark, folder, key, count) for key, count in keys.items()},
        "corners": run(spark, folder, first, keys[first], corners=True),
    }


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
