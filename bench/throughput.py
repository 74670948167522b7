"""Throughput: visits in Kafka to browser statistics per 5-minute window in Kafka."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from bench import oracle
from bench.broker import create_topic, delete_topics, ensure_visits_topic
from bench.charts import HEADWATER_COLOR, OTHER_COLOR, WRONG_COLOR, Bar, draw_bars
from bench.checkpoints import read_stream_times
from bench.contender import Contender, ContenderFailed, RunContext, run_rounds, run_to_end, select
from bench.engines import bytewax, flink, headwater_drain, kafka_streams, noop, pathway, quix, spark_batch, tutorial
from bench.environments import PACKAGES
from bench.tables import (
    best,
    describe_conditions,
    format_number,
    format_verdict,
    is_correct,
    last_line,
    markdown_table,
    median,
    wrap,
)

BATCH = 200_000
LIMIT_SECONDS = 1200.0
NOT_PEERS = ("headwater", "tutorial", "spark-batch", "noop")

# Numerator, denominator, description, target
RATIOS = (
    ("headwater", "tutorial", "Headwater to tutorial PySpark, one batch each", 1.5),
    ("headwater-200k", "tutorial-200k", "Headwater to tutorial PySpark, batches of 200,000 each", 3.0),
    ("headwater", "noop-json", "Headwater to Spark that only reads and decodes, with Spark's consumer options", 0.9),
    (
        "headwater",
        "noop-json-tuned",
        "Headwater to Spark that only reads and decodes, with Headwater's consumer options",
        None,
    ),
    ("headwater-200k", "headwater", "Headwater in batches of 200,000 to Headwater in one batch", None),
)


def _version(peer: str) -> str:
    return PACKAGES[peer][0].partition("==")[2]


CONTENDERS = (
    Contender("headwater", "Headwater, one batch", "durable: RocksDB and changelog", headwater_drain),
    Contender(
        "headwater-200k",
        "Headwater, batches of 200,000",
        "durable: RocksDB and changelog",
        lambda context: headwater_drain(context, f"&maxOffsetsPerTrigger={BATCH}"),
    ),
    Contender("tutorial", "tutorial PySpark, one batch", "durable: HDFS-backed", tutorial),
    Contender(
        "tutorial-200k",
        "tutorial PySpark, batches of 200,000",
        "durable: HDFS-backed",
        lambda context: tutorial(context, "--max-offsets", str(BATCH)),
    ),
    Contender("spark-batch", "Spark batch job", "none: a batch job", spark_batch),
    Contender("noop-json", "Kafka and from_json to the noop sink", "none", lambda context: noop(context, "--decode")),
    Contender(
        "noop-json-tuned",
        "Kafka and from_json to the noop sink, Headwater's consumer options",
        "none",
        lambda context: noop(context, "--decode", "--tuned"),
    ),
    Contender("noop", "Kafka to the noop sink", "none", noop),
    Contender("flink", f"PyFlink {_version('flink')}", "durable: heap, checkpoints every 10 s", flink),
    Contender(
        "streams-1",
        "Kafka Streams 4.3.1, 1 thread",
        "durable: RocksDB and changelog topic",
        lambda context: kafka_streams(context, 1, context.records),
    ),
    Contender(
        "streams-2",
        "Kafka Streams 4.3.1, 2 threads",
        "durable: RocksDB and changelog topic",
        lambda context: kafka_streams(context, 2, context.records),
    ),
    Contender(
        "bytewax",
        f"Bytewax {_version('bytewax')}",
        "none",
        lambda context: bytewax(context, "bytewax_stats.py"),
        max_records=1_000_000,
    ),
    Contender(
        "bytewax-manual",
        f"Bytewax {_version('bytewax')}, hand-written windows",
        "none",
        lambda context: bytewax(context, "bytewax_manual.py"),
    ),
    Contender(
        "bytewax-manual-recovery",
        f"Bytewax {_version('bytewax')}, hand-written windows, recovery on",
        "durable: snapshots every 10 s",
        lambda context: bytewax(context, "bytewax_manual.py", recovery=True),
    ),
    Contender(
        "pathway",
        f"Pathway {_version('pathway')}, 2 threads",
        "durable: snapshots every 10 s",
        pathway,
    ),
    Contender(
        "quix",
        f"Quix Streams {_version('quixstreams')}",
        "durable: RocksDB and changelog topic",
        quix,
        max_records=500_000,
    ),
)


def run(bootstrap: str, work: Path, *, records: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """Run all contenders on one topic, the slowest on a shorter one, and check every answer."""
    expected: dict[str, tuple[Path, dict[oracle.Key, oracle.Bounds]]] = {}

    def run_once(contender: Contender, number: int) -> dict[str, Any]:
        size = min(records, contender.max_records or records)
        topic = ensure_visits_topic(bootstrap, size)
        if topic not in expected:
            file = oracle.export_topic(bootstrap, topic, work / "oracle")
            expected[topic] = file, oracle.compute_bounds(file)
        context = RunContext(work / "run", bootstrap, topic, f"bench-throughput-{contender.slug}-{number}", size)
        return measure_run(contender, context, *expected[topic])

    return {
        "records": records,
        "batch_records": BATCH,
        "contenders": run_rounds(select(CONTENDERS, only), rounds, run_once),
    }


def measure_run(
    contender: Contender, context: RunContext, records: Path, bounds: dict[oracle.Key, oracle.Bounds]
) -> dict[str, Any]:
    """Run a contender once and return what it cost and whether its answer is correct."""
    delete_topics(context.bootstrap, context.out)
    create_topic(context.bootstrap, context.out)
    try:
        measured = run_to_end(contender, context, seconds=LIMIT_SECONDS)
        is_stream = (context.checkpoint / "offsets").is_dir()
        times = vars(read_stream_times(context.checkpoint)) if is_stream else measured.last_json
        if "done_at" not in times:
            raise ContenderFailed(f"printed no start and end times: {json.dumps(times)}")
        found: dict[str, Any] = {
            "records": context.records,
            "start_seconds": round(times["ready_at"] - measured.started_at, 2),
            "seconds": round(times["done_at"] - times["ready_at"], 2),
            "records_per_second": round(context.records / (times["done_at"] - times["ready_at"])),
            "with_start": round(context.records / (times["done_at"] - measured.started_at)),
            "cpu_seconds": measured.cpu_seconds,
            "peak_megabytes": measured.peak_megabytes,
        }
        if is_stream:
            found["batches"] = times["batches"]
        if not contender.slug.startswith("noop"):
            answer = oracle.read_answer(context.bootstrap, context.out)
            found |= oracle.judge_statistics(answer, bounds)
            if is_stream:
                found["exact"] = answer == oracle.exact_answer(records, context.checkpoint)
                found["correct"] = found["correct"] and found["exact"]
        return found
    finally:
        delete_topics(context.bootstrap, context.out)
        with contextlib.suppress(OSError):
            shutil.rmtree(context.folder)


def format_table(result: dict[str, Any]) -> str:
    head = ("contender", "records/s: median", "best", "with start-up", "start-up s", "CPU s per million")
    head += ("peak MB", "records", "late records counted", "correct", "state after a crash")
    rows = []
    for row in _rank(result):
        if not row["runs"]:
            rows.append((row["name"], "did not run", *[""] * 7, last_line(row["error"] or ""), row["state"]))
            continue
        records = row["runs"][0]["records"]
        rows.append(
            (
                row["name"],
                format_number(median(row, "records_per_second")),
                format_number(best(row, "records_per_second")),
                format_number(median(row, "with_start")),
                format_number(median(row, "start_seconds"), 1),
                format_number((median(row, "cpu_seconds") or 0) / records * 1e6, 1),
                format_number(median(row, "peak_megabytes")),
                format_number(records),
                format_number(median(row, "late_counted")),
                format_verdict(row),
                row["state"],
            )
        )
    title = (
        f"{result['records']:,} visits in Kafka to statistics per browser and 5-minute window in Kafka. Contenders that would "
        "take too long get fewer records (see the records column)."
    )
    return "\n\n".join([wrap(title), markdown_table(head, rows), *_list_ratios(result), describe_conditions(result)])


def _list_ratios(result: dict[str, Any]) -> list[str]:
    speed = {row["slug"]: _speed(row) for row in result["contenders"]}
    ratios = list(RATIOS)
    if peer := _fastest_peer(result):
        name = f"{peer['name']}, the fastest peer"
        ratios.append(("headwater", peer["slug"], f"Headwater in one batch to {name}", None))
        ratios.append(("headwater-200k", peer["slug"], f"Headwater in batches of 200,000 to {name}", None))
    lines = []
    for numerator, denominator, description, target in ratios:
        if speed.get(numerator) and speed.get(denominator):
            ratio = f"{speed[numerator] / speed[denominator]:.2f}"
            lines.append(f"- {description}: {ratio}{f' (target: {target:g})' if target else ''}")
    return ["Ratios of the median throughput after start-up:", "\n".join(lines)] if lines else []


def summarize(result: dict[str, Any]) -> str:
    speed = {row["slug"]: f"{_speed(row) / 1000:.0f}k" if _speed(row) else "no result" for row in result["contenders"]}
    parts = [
        f"{name} {speed[slug]} records/s in one batch and {speed.get(f'{slug}-200k', 'no result')} in batches of "
        f"{result['batch_records']:,}"
        for slug, name in (("headwater", "Headwater"), ("tutorial", "tutorial PySpark"))
        if slug in speed
    ]
    if peer := _fastest_peer(result):
        parts.append(f"fastest peer ({peer['name']}) {speed[peer['slug']]}")
    return f"throughput of {result['records']:,} visits: {', '.join(parts) or 'no result'}"


def draw_plots(result: dict[str, Any]) -> dict[str, str]:
    rows = []
    for row in _rank(result):
        if value := _speed(row):
            is_headwater = row["slug"].startswith("headwater")
            color = WRONG_COLOR if not is_correct(row) else HEADWATER_COLOR if is_headwater else OTHER_COLOR
            rows.append(Bar(row["name"], value, f"{value / 1000:.0f}k", color))
    note = "records per second after start-up, median; red: wrong answers in at least one run"
    return {"throughput": draw_bars(f"Throughput, {result['records']:,} visits", rows, note)}


def _rank(result: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(result["contenders"], key=_speed, reverse=True)


def _speed(row: dict[str, Any]) -> float:
    return median(row, "records_per_second") or 0


def _fastest_peer(result: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fastest contender that is another engine and correct in every run."""
    peers = [row for row in _rank(result) if row["runs"] and is_correct(row) and not row["slug"].startswith(NOT_PEERS)]
    return peers[0] if peers else None
