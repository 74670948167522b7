"""Custom state: purchases to a running total for each user, with several ways of keeping state."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.broker import PARTITIONS, count_records, create_topic, delete_topics, read_topic
from bench.charts import HEADWATER_COLOR, OTHER_COLOR, Bar, draw_bars
from bench.checkpoints import read_stream_times
from bench.contender import Command, Contender, RunContext, program, run_rounds, run_to_end, select
from bench.engines import headwater, spark_jars
from bench.oracle import judge_totals
from bench.tables import (
    best,
    describe_conditions,
    format_number,
    format_verdict,
    last_line,
    markdown_table,
    median,
    wrap,
)

LIMIT_SECONDS = 900.0
BATCHES = 5
USERS = 50_000
SEED = 11


def _documented(context: RunContext, form: str, settings: str) -> Command:
    kafka = ["--bootstrap", context.bootstrap, "--topic", context.topic, "--out", context.out]
    options = ["--form", form, "--settings", settings, "--jars", spark_jars(), "--max-offsets", _batch_records(context)]
    return program("custom_state.py", *kafka, "--checkpoint", str(context.checkpoint), *options)


def _running_totals(context: RunContext, *more: str) -> Command:
    source = f"&maxOffsetsPerTrigger={_batch_records(context)}"
    # Without a key, the rows of a user would go to both partitions and have no order.
    return headwater(
        context, "--trigger", "available-now", *more, source=source, sink="?key=user", job="running-totals"
    )


def _batch_records(context: RunContext) -> str:
    return str(-(-context.records // BATCHES))


# The same totals with other kinds of state, in PySpark's workers and in Headwater's.
KINDS = {"list": "ListState", "map": "MapState", "timers": "timers", "ttl": "time to live"}


def _in_both_workers(form: str, kind: str) -> tuple[Contender, Contender]:
    def with_settings(settings: str) -> Callable[[RunContext], Command]:
        return lambda context: _documented(context, form, settings)

    name = f"transformWithState with {kind}, Headwater's settings"
    return (
        Contender(f"{form}-workers", f"{name} and workers", "custom", with_settings("headwater-workers")),
        Contender(form, f"{name}, PySpark's workers", "custom", with_settings("headwater")),
    )


CONTENDERS = (
    Contender("headwater", "Headwater, running-totals", "custom", _running_totals),
    Contender(
        "headwater-built-in",
        "Headwater, running-totals, form=built_in (native aggregation)",
        "aggregation",
        lambda context: _running_totals(context, "--set", "form=built_in"),
    ),
    Contender(
        "documented-workers",
        "transformWithState as documented, Headwater's settings and workers",
        "custom",
        lambda context: _documented(context, "rows", "headwater-workers"),
    ),
    Contender(
        "documented",
        "transformWithState as documented, Headwater's settings, PySpark's workers",
        "custom",
        lambda context: _documented(context, "rows", "headwater"),
    ),
    Contender(
        "documented-pandas",
        "transformWithStateInPandas as documented, Headwater's settings, PySpark's workers",
        "custom",
        lambda context: _documented(context, "pandas", "headwater"),
    ),
    Contender(
        "documented-defaults",
        "transformWithState as documented, Spark's settings",
        "custom",
        lambda context: _documented(context, "rows", "spark"),
    ),
    *(contender for form, kind in KINDS.items() for contender in _in_both_workers(form, kind)),
)
# For each kind of state the contenders in Headwater's workers and in PySpark's.
PAIRS = {
    "ValueState": ("documented-workers", "documented"),
    **{kind: (f"{form}-workers", form) for form, kind in KINDS.items()},
}


def run(bootstrap: str, work: Path, *, purchases: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """Run all contenders on one topic and check every user's total."""
    topic = _ensure_purchases_topic(bootstrap, purchases)
    expected: Counter[str] = Counter()
    for user, amount in _generate_purchases(purchases):
        expected[user] += amount

    def run_once(contender: Contender, number: int) -> dict[str, Any]:
        context = RunContext(work / "run", bootstrap, topic, f"bench-custom-state-{contender.slug}-{number}", purchases)
        delete_topics(bootstrap, context.out)
        create_topic(bootstrap, context.out)
        try:
            measured = run_to_end(contender, context, seconds=LIMIT_SECONDS)
            times = read_stream_times(context.checkpoint)
            return {
                "records": purchases,
                "start_seconds": round(times.ready_at - measured.started_at, 2),
                "seconds": round(times.done_at - times.ready_at, 2),
                "records_per_second": round(purchases / (times.done_at - times.ready_at)),
                "with_start": round(purchases / (times.done_at - measured.started_at)),
                "last_batch_seconds": round(times.batch_seconds[-1], 2),
                "batches": times.batches,
                "cpu_seconds": measured.cpu_seconds,
                "peak_megabytes": measured.peak_megabytes,
                **judge_totals(_read_totals(bootstrap, context.out), expected),
            }
        finally:
            delete_topics(bootstrap, context.out)
            with contextlib.suppress(OSError):
                shutil.rmtree(context.folder)

    rows = run_rounds(select(CONTENDERS, only), rounds, run_once)
    return {"purchases": purchases, "users": USERS, "batches": BATCHES, "contenders": rows}


def _generate_purchases(count: int) -> Iterator[tuple[str, int]]:
    """Yield user and amount of each purchase, always the same for the same count."""
    rng = random.Random(SEED)
    for _ in range(count):
        yield f"user-{rng.randrange(USERS)}", rng.randrange(1, 1000)


def _ensure_purchases_topic(bootstrap: str, count: int) -> str:
    """Return a topic with ``count`` purchases; a topic from an earlier run is reused."""
    from confluent_kafka import Producer

    topic = f"purchases-{count}-{USERS}"
    existing = count_records(bootstrap, topic)
    if existing == count:
        return topic
    if existing is not None:
        delete_topics(bootstrap, topic)
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number, (user, amount) in enumerate(_generate_purchases(count)):
        value = f"{{'user': '{user}', 'shopping': {amount}, 'date': '20-04-2020'}}".encode()
        while True:
            try:
                producer.produce(topic, value, partition=number // 64 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return topic


def _read_totals(bootstrap: str, topic: str) -> Iterator[tuple[str, int]]:
    """Yield user and total of each output row in order; the last row of a user counts."""
    for _, _, _, value in read_topic(bootstrap, topic):
        row = json.loads(value)
        yield row["user"], int(row["total"])


def format_table(result: dict[str, Any]) -> str:
    head = ("contender", "records/s: median", "best", "with start-up", "CPU s per million", "peak MB", "correct")
    rows = []
    for row in _rank(result):
        if not row["runs"]:
            rows.append((row["name"], "did not run", *[""] * 4, last_line(row["error"] or "")))
            continue
        rows.append(
            (
                row["name"],
                format_number(median(row, "records_per_second")),
                format_number(best(row, "records_per_second")),
                format_number(median(row, "with_start")),
                format_number((median(row, "cpu_seconds") or 0) / result["purchases"] * 1e6, 1),
                format_number(median(row, "peak_megabytes")),
                format_verdict(row),
            )
        )
    title = (
        f"{result['purchases']:,} purchases of {result['users']:,} users in Kafka, read in {result['batches']} batches, "
        "to each user's running total in Kafka."
    )
    return "\n\n".join([wrap(title), markdown_table(head, rows), *_format_pairs(result), describe_conditions(result)])


def _format_pairs(result: dict[str, Any]) -> list[str]:
    """Return a table of the kinds of state that ran in both kinds of workers."""
    speed = {row["slug"]: median(row, "records_per_second") for row in result["contenders"]}
    rows = [
        (kind, format_number(ours), format_number(theirs), format_number(ours / theirs, 1))
        for kind, (our_slug, their_slug) in PAIRS.items()
        if (ours := speed.get(our_slug)) and (theirs := speed.get(their_slug))
    ]
    if not rows:
        return []
    head = ("unchanged processor with", "records/s in Headwater's workers", "in PySpark's workers", "times as fast")
    return [markdown_table(head, rows)]


def summarize(result: dict[str, Any]) -> str:
    names = {
        "headwater": "Headwater",
        "documented-workers": "documented code with Headwater's workers",
        "documented": "with PySpark's workers",
        "headwater-built-in": "native aggregation",
    }
    speed = {row["slug"]: median(row, "records_per_second") for row in result["contenders"]}
    parts = [f"{name} {found / 1000:.0f}k records/s" for slug, name in names.items() if (found := speed.get(slug))]
    return f"custom state over {result['purchases']:,} purchases: {', '.join(parts) or 'no result'}"


def draw_plots(result: dict[str, Any]) -> dict[str, str]:
    rows = [
        Bar(row["name"], value, f"{value / 1000:.0f}k", HEADWATER_COLOR if _is_headwater(row) else OTHER_COLOR)
        for row in _rank(result)
        if (value := median(row, "records_per_second"))
    ]
    return {
        "custom_state": draw_bars(
            "Running totals: ways to keep state", rows, "records per second after start-up, median"
        )
    }


def _is_headwater(row: dict[str, Any]) -> bool:
    return bool(row["slug"].startswith("headwater"))


def _rank(result: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(result["contenders"], key=lambda row: -(median(row, "records_per_second") or 0))
