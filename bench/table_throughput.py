"""How fast a stateful job writes to a Delta or Iceberg table, next to plain PySpark with the same settings.

    python -m bench.table_throughput FORMAT RECORDS ROUNDS FOLDER RESULT

measures one format in the environment of this Python and writes the result as JSON. Both contenders run in one Spark
session and alternate, so that other load on the machine affects both. What they wrote is compared with the input.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark import __version__ as pyspark_version

from headwater import Delta, Files, Iceberg
from headwater.jobs.job import Job
from headwater.jobs.loading import load_job
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from headwater.spark.session import start_session, stop_session

STORES = 200
BATCHES = 30
WARM_UP_BATCHES = 10
WINDOW_MINUTES = WATERMARK_MINUTES = 5
SALE = "store STRING, counter INT, amount BIGINT, sold_at TIMESTAMP, day DATE"
KINDS = {"delta": ("append", "merge"), "iceberg": ("append",)}
CATALOG = "bench"
CONTENDERS = ("pyspark", "headwater")

Totals = dict[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True)
class Target:
    """A table of a format, in a folder of its own, that rows are appended to or merged into."""

    place: Path
    format: str
    kind: str

    @property
    def name(self) -> str:
        return f"{CATALOG}.totals.{self.place.name.replace('-', '_')}"

    @property
    def path(self) -> str:
        return str(self.place / "table")

    @property
    def mode(self) -> str:
        return "update" if self.kind == "merge" else "append"

    @property
    def sink(self) -> Delta | Iceberg:
        if self.format == "iceberg":
            return Iceberg(self.name)
        return Delta(self.path, merge_on="store,window" if self.kind == "merge" else ())

    def rows(self, spark: Any) -> list[Any]:
        found = spark.table(self.name) if self.format == "iceberg" else spark.read.format("delta").load(self.path)
        return list(found.collect())


def bench_session(folder: Path, format_name: str) -> Any:
    """Start the session that all contenders of a format share."""
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if format_name == "iceberg":
        prefix = f"spark.sql.catalog.{CATALOG}"
        conf[prefix] = "org.apache.iceberg.spark.SparkCatalog"
        conf |= {f"{prefix}.type": "hadoop", f"{prefix}.warehouse": str(folder / "iceberg")}
    return start_session("bench", master="local[2]", conf=conf, jars=(format_name,), log=folder / "spark.log")


def measure(
    spark: Any, folder: Path, format_name: str, *, records: int, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Return records per second of each round, by kind of write and contender, with batches of ``records``."""
    found = {}
    for kind in KINDS[format_name]:
        targets = {
            (name, number): Target(folder / kind / f"{name}-{number}", format_name, kind)
            for number in range(rounds + 1)
            for name in CONTENDERS
        }
        found[kind] = _measure_kind(spark, targets, records)
    return found


def _measure_kind(spark: Any, targets: dict[tuple[str, int], Target], records: int) -> dict[str, list[float]]:
    from headwater.spark.internals.state_stores import unload_state_stores

    run = {"pyspark": _plain_pyspark, "headwater": _headwater}
    speeds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    # The second to run finds warm caches, so the order alternates. The first round warms up the JVM.
    for name, number in sorted(
        targets, key=lambda place: (place[1], (place[0] == CONTENDERS[0]) == bool(place[1] % 2))
    ):
        target = targets[name, number]
        inbox = put_files(target.place / "inbox", BATCHES, records)
        seconds = run[name](spark, inbox, target)
        _check(target.rows(spark), target.kind, records, f"{name} into {target.format}")
        if number:
            speeds[name].append((BATCHES - WARM_UP_BATCHES) * records / seconds)
        # Spark's maintenance still writes snapshots of the state that is loaded.
        unload_state_stores(spark)
        shutil.rmtree(target.place, ignore_errors=True)
    return speeds


def _sales(number: int, records: int) -> Iterator[dict[str, Any]]:
    """Return the sales of a file: those of a minute, and some of the minute before it."""
    for index in range(records):
        minute = number if index % 10 else max(number - 1, 0)
        at = f"2024-05-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:{index % 60:02d}Z"
        yield {"store": f"s{index % STORES}", "counter": index % 7, "amount": index, "sold_at": at, "day": at[:10]}


def put_files(inbox: Path, count: int, records: int) -> Path:
    """Write one file for each batch."""
    inbox.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        file = inbox / f"{number:06d}.json"
        file.write_text("\n".join(json.dumps(sale) for sale in _sales(number, records)))
        os.utime(file, (1_000_000_000 + number,) * 2)
    return inbox


def _check(rows: list[Any], kind: str, records: int, what: str) -> None:
    """Compare a table with the totals of the input: of all windows, or of those that the watermark has closed."""
    found = {(row["store"], f"{row['window']['start']:%H:%M}"): (row["sales"], row["receipts"]) for row in rows}
    expected = _expected_totals(records, closed_only=kind == "append")
    assert len(found) == len(rows), f"{what}: a window was written twice"
    assert found == expected, f"{what}: the table has {len(found)} windows, not the {len(expected)} of the input"


def _expected_totals(records: int, *, closed_only: bool) -> Totals:
    totals: Totals = {}
    newest = ""
    for number in range(BATCHES):
        for sale in _sales(number, records):
            newest = max(newest, sale["sold_at"])
            at = datetime.fromisoformat(sale["sold_at"])
            start = f"{at.hour:02d}:{at.minute // WINDOW_MINUTES * WINDOW_MINUTES:02d}"
            amount, receipts = totals.get((sale["store"], start), (0, 0))
            totals[sale["store"], start] = amount + sale["amount"], receipts + 1
    if not closed_only:
        return totals
    last = datetime.fromisoformat(newest)
    open_from = last.hour * 60 + last.minute - WATERMARK_MINUTES
    return {key: total for key, total in totals.items() if _minutes(key[1]) + WINDOW_MINUTES <= open_from}


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def totals_job(inbox: Path, target: Target) -> Job:
    """Return the totals of the gallery on a folder, merged into a table or, when windows are closed, appended to it."""
    settings = {"window": f"{WINDOW_MINUTES} minutes", "watermark": f"{WATERMARK_MINUTES} minutes"}
    return replace(
        load_job("retail-sales-lakehouse").with_settings(settings),
        reads=Files(str(inbox), schema=SALE, options={"maxFilesPerTrigger": "1"}),
        writes=target.sink,
        mode=target.mode,
        trigger="available-now",
    )


def _headwater(spark: Any, inbox: Path, target: Target) -> float:
    ends: list[float] = []
    job = totals_job(inbox, target)
    run_job(
        spark,
        Run(job, job.name, str(target.place / "checkpoint")),
        stop=threading.Event(),
        on_batch=lambda batch: ends.append(batch.at_ms + batch.duration_ms) if batch.input_rows else None,
    )
    return _seconds(ends)


def _plain_pyspark(spark: Any, inbox: Path, target: Target) -> float:
    """Run the same aggregation as a tutorial writes it."""
    from pyspark.sql import functions as F

    sales = spark.readStream.schema(SALE).option("maxFilesPerTrigger", 1).json(str(inbox))
    windows = sales.withWatermark("sold_at", f"{WATERMARK_MINUTES} minutes")
    windows = windows.groupBy("store", F.window("sold_at", f"{WINDOW_MINUTES} minutes"))
    totals = windows.agg(F.sum("amount").alias("sales"), F.count("*").alias("receipts"))
    writer = totals.writeStream.option("checkpointLocation", str(target.place / "checkpoint"))
    writer = writer.trigger(availableNow=True).outputMode(target.mode)
    if target.format == "iceberg":
        query = writer.format("iceberg").option("fanout-enabled", "true").toTable(target.name)
    elif target.kind == "append":
        query = writer.format("delta").start(target.path)
    else:
        spark.createDataFrame([], totals.schema).write.format("delta").save(target.path)
        query = writer.foreachBatch(_merge_into(target.path)).start()
    query.awaitTermination()
    return _seconds(_ends(query))


def _merge_into(path: str) -> Callable[[Any, int], None]:
    """Return what Delta documents for a merge that is applied once."""

    def merge(frame: Any, batch_id: int) -> None:
        frame.sparkSession.conf.set("spark.databricks.delta.write.txnAppId", path)
        frame.sparkSession.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
        frame.createOrReplaceTempView("updates")
        frame.sparkSession.sql(
            f"MERGE INTO delta.`{path}` t USING updates u ON t.store = u.store AND t.window = u.window "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    return merge


def _ends(query: Any) -> list[float]:
    """Return when each batch with records ended, as Spark reports it."""
    from headwater.core.times import ms_from_iso

    found = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return [ms_from_iso(one["timestamp"]) + one["durationMs"]["triggerExecution"] for one in found]


def _seconds(ends: list[float]) -> float:
    assert len(ends) == BATCHES, f"{len(ends)} batches instead of {BATCHES}"
    return (ends[-1] - ends[WARM_UP_BATCHES - 1]) / 1000


def main() -> None:
    format_name, (records, rounds) = sys.argv[1], map(int, sys.argv[2:4])
    folder, result = map(Path, sys.argv[4:])
    folder.mkdir(parents=True, exist_ok=True)
    spark = bench_session(folder, format_name)
    try:
        speeds = measure(spark, folder, format_name, records=records, rounds=rounds)
    finally:
        stop_session(spark)
    result.write_text(json.dumps({"pyspark": pyspark_version, "throughput": speeds}))


if __name__ == "__main__":
    main()
