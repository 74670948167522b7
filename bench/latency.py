"""Latency: the time from sending a visit until it is in the output, under a steady load."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import measure
from bench.broker import PARTITIONS, create_topic, delete_topics
from bench.charts import HEADWATER_COLOR, OTHER_COLOR, Bar, draw_bars
from bench.contender import Contender, ContenderFailed, RunContext, run_rounds, select
from bench.engines import flink, headwater, headwater_on, kafka_streams, tutorial
from bench.tables import best, describe_conditions, format_number, last_line, markdown_table, median, wrap
from bench.traffic import OutputReader, VisitProducer, record_latencies, update_latencies

FIRST_OUTPUT_SECONDS = 300.0
WARM_SECONDS = 15.0
DRAIN_SECONDS = 20.0
PASSTHROUGH_JOB = f"{Path(__file__).parent / 'jobs' / 'passthrough.py'}:PASSTHROUGH"
PASSTHROUGH_SLUGS = ("headwater-passthrough", "headwater-real-time")


@dataclass(frozen=True)
class Load:
    """Visits a second, and how long they are measured."""

    rate: int = 1000
    seconds: float = 60.0


CONTENDERS = (
    Contender("headwater", "Headwater, stateful", "durable", headwater),
    Contender(
        "headwater-stateful-real-time",
        "Headwater, stateful, real-time trigger, PySpark 4.3",
        "durable",
        lambda context: headwater_on("4.3", context, "--trigger", "real-time 10 seconds"),
    ),
    Contender(
        "headwater-stateful-real-time-long",
        "Headwater, stateful, real-time trigger with batches of 5 minutes, PySpark 4.3",
        "durable",
        lambda context: headwater_on("4.3", context, "--trigger", "real-time 5 minutes"),
    ),
    Contender(
        "headwater-stateless",
        "Headwater, per batch, stateless",
        "none kept",
        lambda context: headwater(context, job="browser-stats-stateless"),
    ),
    Contender(
        "headwater-passthrough",
        "Headwater, pass-through",
        "none kept",
        lambda context: headwater(context, job=PASSTHROUGH_JOB),
    ),
    Contender(
        "headwater-real-time",
        "Headwater, pass-through, real-time trigger",
        "none kept",
        lambda context: headwater(context, "--trigger", "real-time 5 seconds", job=PASSTHROUGH_JOB),
    ),
    Contender("tutorial", "tutorial PySpark, stateful", "durable", lambda context: tutorial(context, "--forever")),
    Contender("streams", "Kafka Streams, no cache", "durable", lambda context: kafka_streams(context, 1, 0)),
    Contender("flink", "PyFlink, one row per update", "durable", lambda context: flink(context, "--updates")),
)


def run(bootstrap: str, work: Path, *, load: Load, rounds: int, only: list[str]) -> dict[str, Any]:
    """Run every contender on topics of its own and return the latencies."""

    def run_once(contender: Contender, number: int) -> dict[str, Any]:
        name = f"bench-latency-{contender.slug}-{number}"
        context = RunContext(work / "run", bootstrap, f"{name}-in", f"{name}-out", 0)
        try:
            return _measure_run(contender, context, load)
        finally:
            delete_topics(bootstrap, name)
            with contextlib.suppress(OSError):
                shutil.rmtree(context.folder)

    rows = run_rounds(select(CONTENDERS, only), rounds, run_once)
    return {"rate": load.rate, "seconds": load.seconds, "warm_seconds": WARM_SECONDS, "contenders": rows}


def _measure_run(contender: Contender, context: RunContext, load: Load) -> dict[str, Any]:
    delete_topics(context.bootstrap, context.out.removesuffix("-out"))
    for topic in (context.topic, context.out):
        create_topic(context.bootstrap, topic)
    shutil.rmtree(context.folder, ignore_errors=True)
    context.folder.mkdir(parents=True)
    command = contender.command(context)
    log = context.folder.parent / "logs" / f"{context.out}.log"
    producer = VisitProducer(context.bootstrap, context.topic, load.rate)
    reader = OutputReader(context.bootstrap, context.out, PARTITIONS)
    with measure.running(command.argv, log=log, env=command.env, cwd=context.folder) as program:
        producer.start()
        reader.start()
        try:
            _wait_for_output(reader, program, log)
            time.sleep(WARM_SECONDS)
            begin = time.time()
            time.sleep(load.seconds)
            measured = [visit for visit in list(producer.sent) if visit[2] >= begin]
            producer.stop()
            latencies = record_latencies if contender.slug in PASSTHROUGH_SLUGS else update_latencies
            deadline = time.time() + DRAIN_SECONDS
            while None in (found := latencies(measured, list(reader.received))) and time.time() < deadline:
                time.sleep(0.5)
        finally:
            producer.stop()
            reader.stop()
    assert program.result is not None
    answered = sorted(value for value in found if value is not None)
    if not answered:
        raise ContenderFailed("none of the measured visits arrived in the output")
    return {
        "records": len(measured),
        "unanswered": len(found) - len(answered),
        "p50_ms": round(statistics.median(answered) * 1000, 1),
        "p99_ms": round(answered[int(len(answered) * 0.99)] * 1000, 1),
        "max_ms": round(answered[-1] * 1000, 1),
        "cpu_seconds": program.result.cpu_seconds,
        "wall_seconds": program.result.wall_seconds,
        "peak_megabytes": program.result.peak_megabytes,
    }


def _wait_for_output(reader: OutputReader, program: measure.RunningProgram, log: Path) -> None:
    deadline = time.time() + FIRST_OUTPUT_SECONDS
    while not reader.received:
        if program.process.poll() is not None or time.time() > deadline:
            output = log.read_text(errors="replace").strip()[-800:]
            raise ContenderFailed(f"no output within {FIRST_OUTPUT_SECONDS:.0f} s: {output}")
        time.sleep(0.1)


def format_table(result: dict[str, Any]) -> str:
    head = ("contender", "p50 ms: median", "best", "p99 ms: median", "best", "worst ms", "CPU cores used", "peak MB")
    head += ("not in the output",)
    rows = []
    for row in _rank(result):
        if not row["runs"]:
            rows.append((row["name"], "did not run", *[""] * 6, last_line(row["error"] or "")))
            continue
        cores = [run["cpu_seconds"] / run["wall_seconds"] for run in row["runs"]]
        rows.append(
            (
                row["name"],
                format_number(median(row, "p50_ms")),
                format_number(best(row, "p50_ms", lowest=True)),
                format_number(median(row, "p99_ms")),
                format_number(best(row, "p99_ms", lowest=True)),
                format_number(max(run["max_ms"] for run in row["runs"])),
                format_number(sorted(cores)[len(cores) // 2], 2),
                format_number(median(row, "peak_megabytes")),
                format_number(median(row, "unanswered")),
            )
        )
    title = (
        f"{result['rate']:,} visits a second for {result['seconds']:.0f} s, after a warm-up of {result['warm_seconds']:.0f} s. "
        "Latency is the time from just before a record is sent until an independent consumer receives the row that counts it."
    )
    return "\n\n".join([wrap(title), markdown_table(head, rows), describe_conditions(result)])


def summarize(result: dict[str, Any]) -> str:
    rows = {row["slug"]: row for row in result["contenders"] if row["runs"]}
    names = {
        "headwater": "Headwater",
        "headwater-stateful-real-time": "Headwater in real time",
        "flink": "PyFlink",
        "streams": "Kafka Streams",
        "tutorial": "tutorial PySpark",
    }
    parts = [
        f"{name} {median(rows[slug], 'p50_ms'):,.0f} and {median(rows[slug], 'p99_ms'):,.0f} ms"
        for slug, name in names.items()
        if slug in rows
    ]
    return f"p50 and p99 latency with state at {result['rate']:,} visits a second: {', '.join(parts) or 'no result'}"


def draw_plots(result: dict[str, Any]) -> dict[str, str]:
    rows = [
        Bar(
            row["name"],
            median(row, "p50_ms") or 0,
            f"{median(row, 'p50_ms'):,.0f} / {median(row, 'p99_ms'):,.0f} ms",
            HEADWATER_COLOR if row["slug"].startswith("headwater") else OTHER_COLOR,
            median(row, "p99_ms"),
        )
        for row in _rank(result)
        if row["runs"] and row["slug"] != "tutorial"
    ]
    note = "bar: p50, whisker: p99, in milliseconds; tutorial PySpark is off the scale and only in the table"
    return {"latency": draw_bars(f"Latency at {result['rate']:,} records a second", rows, note)}


def _rank(result: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(result["contenders"], key=lambda row: median(row, "p50_ms") or float("inf"))
