"""Delta tables: a stateful job into a table next to plain PySpark, and a rewind of table and checkpoint.

    python -m bench --workload lakehouse [--delta-batches 500] [--rounds 3]

Both sides of the throughput run in one Spark session with the same settings, and alternate, so that other load on the
machine affects both. The rewind is a cold process. It is compared with what people do without it: delete the checkpoint
and the table, and process everything again.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.broker import HEADWATER
from bench.tables import describe_conditions, format_number, markdown_table, wrap
from headwater import Delta, Files
from headwater.jobs.job import Job
from headwater.jobs.loading import load_job
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from headwater.spark.session import start_session, stop_session

STORES = 200
RECORDS = 20_000
BATCHES = 12
WARM_UP_BATCHES = 3
SMALL_RECORDS = 500
SALE = "store STRING, counter INT, amount BIGINT, sold_at TIMESTAMP, day DATE"
KINDS = ("append", "merge")
RETAINED = "spark.sql.streaming.minBatchesToRetain"


def run(work: Path, *, batches: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """Measure both, or with ``only`` the throughput or the rewind."""
    folder = work / "lakehouse"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = start_session("bench", master="local[2]", conf=conf, jars=("delta",), log=folder / "spark.log")
    found: dict[str, Any] = {"records": RECORDS, "batches": BATCHES, "rounds": rounds}
    try:
        if not only or "throughput" in only:
            found["throughput"] = {kind: _throughput(spark, folder / kind, kind, rounds) for kind in KINDS}
        if not only or "rewind" in only:
            found["rewind"] = _rewind(spark, folder / "rewind", batches)
    finally:
        stop_session(spark)
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _throughput(spark: Any, folder: Path, kind: str, rounds: int) -> dict[str, list[float]]:
    """Return records per second of each round, by contender."""
    from headwater.spark.internals.state_stores import unload_state_stores

    contenders: dict[str, Callable[[Path, Path], float]] = {
        "pyspark": lambda inbox, place: _plain_pyspark(spark, inbox, place, kind),
        "headwater": lambda inbox, place: _headwater(spark, inbox, place, kind),
    }
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        # The second to run finds warm caches, so the order alternates. The first round warms up the JVM.
        for name in sorted(contenders, reverse=bool(number % 2)):
            place = folder / f"{name}-{number}"
            inbox = put_files(place / "inbox", BATCHES, RECORDS)
            seconds = contenders[name](inbox, place)
            if number:
                speeds[name].append((BATCHES - WARM_UP_BATCHES) * RECORDS / seconds)
            # Spark's maintenance still writes snapshots of the state that is loaded.
            unload_state_stores(spark)
            shutil.rmtree(place, ignore_errors=True)
    return speeds


def put_files(inbox: Path, count: int, records: int, first: int = 0) -> Path:
    """Write one file for each batch. Each has the sales of a minute, and some of the minute before it."""
    inbox.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        lines = []
        for index in range(records):
            minute = number if index % 10 else max(number - 1, 0)
            at = f"2024-05-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:{index % 60:02d}Z"
            sale = {"store": f"s{index % STORES}", "counter": index % 7, "amount": index, "sold_at": at, "day": at[:10]}
            lines.append(json.dumps(sale))
        file = inbox / f"{number:06d}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_000_000_000 + number,) * 2)
    return inbox


def totals_job(inbox: Path, place: Path, kind: str) -> Job:
    """Return the totals of the gallery on a folder, merged into a table or, when windows are closed, appended to it."""
    sink = Delta(str(place / "table"), merge_on="store,window" if kind == "merge" else ())
    return replace(
        load_job("retail-sales-lakehouse").with_settings({"window": "5 minutes", "watermark": "5 minutes"}),
        reads=Files(str(inbox), schema=SALE, options={"maxFilesPerTrigger": "1"}),
        writes=sink,
        mode="update" if kind == "merge" else "append",
        trigger="available-now",
    )


def _headwater(spark: Any, inbox: Path, place: Path, kind: str) -> float:
    ends: list[float] = []
    job = totals_job(inbox, place, kind)
    run_job(
        spark,
        Run(job, job.name, str(place / "checkpoint")),
        stop=threading.Event(),
        on_batch=lambda batch: ends.append(batch.at_ms + batch.duration_ms) if batch.input_rows else None,
    )
    return _seconds(ends)


def _plain_pyspark(spark: Any, inbox: Path, place: Path, kind: str) -> float:
    """Run the same aggregation as a tutorial writes it."""
    from pyspark.sql import functions as F

    sales = spark.readStream.schema(SALE).option("maxFilesPerTrigger", 1).json(str(inbox))
    windows = sales.withWatermark("sold_at", "5 minutes").groupBy("store", F.window("sold_at", "5 minutes"))
    totals = windows.agg(F.sum("amount").alias("sales"), F.count("*").alias("receipts"))
    writer = totals.writeStream.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
    table = str(place / "table")
    if kind == "append":
        query = writer.format("delta").outputMode("append").start(table)
    else:
        spark.createDataFrame([], totals.schema).write.format("delta").save(table)

        def merge(frame: Any, _: int) -> None:
            frame.createOrReplaceTempView("updates")
            frame.sparkSession.sql(
                f"MERGE INTO delta.`{table}` t USING updates u ON t.store = u.store AND t.window = u.window "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        query = writer.outputMode("update").foreachBatch(merge).start()
    query.awaitTermination()
    return _seconds(_ends(query))


def _ends(query: Any) -> list[float]:
    """Return when each batch with records ended, as Spark reports it."""
    from headwater.core.times import ms_from_iso

    found = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return [ms_from_iso(one["timestamp"]) + one["durationMs"]["triggerExecution"] for one in found]


def _seconds(ends: list[float]) -> float:
    assert len(ends) == BATCHES, f"{len(ends)} batches instead of {BATCHES}"
    return (ends[-1] - ends[WARM_UP_BATCHES - 1]) / 1000


def _rewind(spark: Any, folder: Path, batches: int) -> dict[str, float]:
    """Rewind the newer half of a stream's batches, undo it, rewind again and run them again."""
    inbox = put_files(folder / "inbox", 2 * batches, SMALL_RECORDS)
    # Spark would otherwise retain the state of the last hundred batches only.
    job = replace(totals_job(inbox, folder, "append"), conf={RETAINED: str(2 * batches + 10)})
    checkpoint = folder / "checkpoint"
    found: dict[str, float] = {"batches": batches, "from_scratch": _run_all(spark, job, checkpoint)}
    before = _rows(spark, job)
    for name, arguments in (
        ("rewind", ("rewind", str(checkpoint), "--to", str(batches - 1), "--yes")),
        ("undo", ("undo", str(checkpoint), "--yes")),
        ("rewind_again", ("rewind", str(checkpoint), "--to", str(batches - 1), "--yes")),
    ):
        started = time.perf_counter()
        subprocess.run([HEADWATER, *arguments], check=True, capture_output=True, env={**os.environ, "TZ": "UTC"})
        found[name] = time.perf_counter() - started
    from headwater.spark.internals.state_stores import unload_state_stores

    unload_state_stores(spark)
    found["run_again"] = _run_all(spark, job, checkpoint)
    assert _rows(spark, job) == before, "the table differs from that of the first run"
    return found


def _run_all(spark: Any, job: Job, checkpoint: Path) -> float:
    started = time.perf_counter()
    run_job(spark, Run(job, job.name, str(checkpoint)), stop=threading.Event())
    return time.perf_counter() - started


def _rows(spark: Any, job: Job) -> list[str]:
    assert isinstance(job.writes, Delta)
    return sorted(str(row) for row in spark.read.format("delta").load(job.writes.path).collect())


def format_table(result: dict[str, Any]) -> str:
    parts = []
    if "throughput" in result:
        rows = []
        for kind, speeds in result["throughput"].items():
            plain, ours = (statistics.median(speeds[name]) for name in ("pyspark", "headwater"))
            rows.append((kind, format_number(plain), format_number(ours), f"{_ratio(speeds):.2f}"))
        title = (
            f"Totals per store and window from files into a Delta table, records a second in batches of "
            f"{result['records']:,}: plain PySpark with Headwater's settings, and Headwater."
        )
        head = ("into the table", "PySpark", "Headwater", "ratio")
        parts += [wrap(title), markdown_table(head, rows)]
    if "rewind" in result:
        times = result["rewind"]
        count = int(times["batches"])
        rows = [
            (f"rewind of {count:,} batches, table and checkpoint", f"{times['rewind']:.1f}"),
            ("undo of that rewind", f"{times['undo']:.1f}"),
            (f"rewind, and {count:,} batches again", f"{times['rewind_again'] + times['run_again']:.1f}"),
            (f"delete both, and {2 * count:,} batches again", f"{times['from_scratch']:.1f}"),
        ]
        parts.append(markdown_table(("after a bad deployment", "seconds"), rows))
    return "\n\n".join([*parts, describe_conditions(result)])


def _ratio(speeds: dict[str, list[float]]) -> float:
    """Return the median of the rounds' ratios: both contenders of a round ran next to each other."""
    return statistics.median(ours / plain for plain, ours in zip(speeds["pyspark"], speeds["headwater"], strict=True))


def summarize(result: dict[str, Any]) -> str:
    said = [f"{kind} {_ratio(speeds):.2f} of PySpark" for kind, speeds in result.get("throughput", {}).items()]
    if "rewind" in result:
        said.append(f"rewind over {int(result['rewind']['batches']):,} batches {result['rewind']['rewind']:.1f} s")
    return f"lakehouse: {', '.join(said)}"


def draw_plots(result: dict[str, Any]) -> dict[str, str]:  # noqa: ARG001  the interface of a workload
    return {}
