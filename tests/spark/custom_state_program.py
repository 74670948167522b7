"""A stream with every kind of custom state under several kinds of keys, run to its end; prints what came out as JSON.

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
    """Says what it finds for each key, and then does something else for each third or fifth row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n BIGINT, text STRING, day DATE, ratio DOUBLE")
        self.other = handle.getValueState("other", "text STRING")
        self.rows = handle.getListState("rows", "n INT, ratio DOUBLE")
        self.sums = handle.getMapState("sums", "n INT", "sum BIGINT, day DATE")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """One row for each key, now and then two."""
        if str(key).endswith("7',)"):
            return  # neither reads its rows nor touches the state
        rows_in_hand = list(rows)
        first = rows_in_hand[0]
        seen = [self.count.exists(), self.count.get(), list(self.rows.get()), sorted(self.sums.iterator())]
        if first.n % 3 == 0:
            seen.append(self.other.get())
        if first.n % 11 == 0:
            self.count.clear()
            seen.append(self.count.exists())
        else:
            known = self.count.get()
            total = (known[0] if known else 0) + len(rows_in_hand)
            self.count.update((total, first.text, first.day, first.ratio))
            seen.append(self.count.get())
        self.other.update(("x" * first.size + str(first.n),))
        self.rows.appendValue((first.n, first.ratio))
        if first.n % 5 == 0:
            self.rows.put([(row.n, row.ratio) for row in rows_in_hand])
        self.sums.updateValue((first.n % 4,), (first.n, first.day))
        if first.n % 7 == 0:
            self.sums.removeKey((first.n % 4,))
        seen += [self.sums.containsKey((2,)), self.sums.getValue((2,)), len((self.other.get() or [""])[0])]
        self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 1_000 * (1 + first.n % 3))
        if first.n % 4 == 0:
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
        yield Row(key=repr(key), said=repr(seen), rows=[Row(n=row.n, text=row.text) for row in rows_in_hand])
        if first.n % 6 == 0:
            yield Row(key=repr(key), said=repr(list(self.handle.listTimers())), rows=None)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """What the key knew when its timer came."""
        said = [expiredTimerInfo.getExpiryTimeInMs(), self.count.get(), list(self.rows.get())]
        self.rows.clear()
        yield Row(key=repr(key), said=repr(said), rows=[])


def made_up(batch: int, keys: int) -> list[tuple[Any, ...]]:
    """Rows of ``keys`` keys, most of them with several rows, some without a value; a few have large ones."""
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
    """All batches through the processor, grouped by ``key``."""
    name = key.replace(", ", "-")
    source = folder / name
    said: list[tuple[int, str]] = []

    def note(frame: DataFrame, batch: int) -> None:
        said.extend((batch, repr(row)) for row in frame.collect())

    for batch in range(BATCHES):
        spark.createDataFrame(made_up(batch, keys), SCHEMA).coalesce(1).write.mode("append").parquet(str(source))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    shape = "key STRING, said STRING, rows ARRAY<STRUCT<n: INT, text: STRING>>"
    grouped = stream.withWatermark("at", "0 seconds").groupBy(*key.split(", "))
    answers = grouped.transformWithState(Everything(), shape, "Append", "EventTime").writeStream.foreachBatch(note)
    checkpointed = answers.option("checkpointLocation", str(folder / f"{name}-checkpoint"))
    checkpointed.trigger(availableNow=True).start().awaitTermination()
    return sorted(said)


def main() -> None:
    """Print a list of (batch, row) for each kind of key."""
    folder, module = Path(sys.argv[1]), sys.argv[2]
    spark = start_session(
        "everything",
        master="local[2]",
        conf={"spark.python.daemon.module": module, "spark.sql.shuffle.partitions": "2"},
        jars=(),
        log=folder / "spark.log",
    )
    print(json.dumps({key: run(spark, folder, key, keys) for key, keys in KEYS.items()}))
    spark.stop()


if __name__ == "__main__":
    main()
