"""Workload C, custom state: purchases of many users to each user's running total, by several ways to keep state."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.broker import create_topic, delete_topics, read_topic
from bench.contender import Arena, Command, Contender, chosen, program, run_to_end, take_turns
from bench.oracle import judge_pairs
from bench.purchases import USERS, purchases_topic, totals
from bench.spark_times import stream_times
from bench.workload_a import headwater, spark_jars

LIMIT_SECONDS = 900.0
BATCHES = 5


def _documented(arena: Arena, form: str, settings: str) -> Command:
    kafka = ["--bootstrap", arena.bootstrap, "--topic", arena.topic, "--out", arena.out]
    how = ["--form", form, "--settings", settings, "--jars", spark_jars(), "--max-offsets", _batch_records(arena)]
    return program("custom_state.py", *kafka, "--checkpoint", str(arena.checkpoint), *how)


def _job(arena: Arena, *more: str) -> Command:
    source = f"&maxOffsetsPerTrigger={_batch_records(arena)}"
    # Without a key the rows of a user would go to both partitions, and nobody could tell which came last.
    return headwater(arena, "--trigger", "available-now", *more, source=source, sink="?key=user", job="running-totals")


def _batch_records(arena: Arena) -> str:
    return str(-(-arena.records // BATCHES))


CONTENDERS = (
    Contender("headwater", "Headwater, running-totals", "custom", _job),
    Contender(
        "headwater-built-in",
        "Headwater, running-totals, form=built_in (native aggregation)",
        "aggregation",
        lambda arena: _job(arena, "--set", "form=built_in"),
    ),
    Contender(
        "documented-workers",
        "transformWithState as documented, Headwater's settings and workers",
        "custom",
        lambda arena: _documented(arena, "rows", "headwater-workers"),
    ),
    Contender(
        "documented",
        "transformWithState as documented, Headwater's settings, PySpark's workers",
        "custom",
        lambda arena: _documented(arena, "rows", "headwater"),
    ),
    Contender(
        "documented-pandas",
        "transformWithStateInPandas as documented, Headwater's settings, PySpark's workers",
        "custom",
        lambda arena: _documented(arena, "pandas", "headwater"),
    ),
    Contender(
        "documented-defaults",
        "transformWithState as documented, Spark's settings",
        "custom",
        lambda arena: _documented(arena, "rows", "spark"),
    ),
)


def run(bootstrap: str, work: Path, *, purchases: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """All ways in turns on one topic; every user's total is checked."""
    topic = purchases_topic(bootstrap, purchases)
    wanted = totals(purchases)

    def run_once(contender: Contender, number: int) -> dict[str, Any]:
        arena = Arena(work / "run", bootstrap, topic, f"bench-c-{contender.slug}-{number}", purchases)
        delete_topics(bootstrap, arena.out)
        create_topic(bootstrap, arena.out)
        try:
            measured = run_to_end(contender, arena, seconds=LIMIT_SECONDS)
            times = stream_times(arena.checkpoint)
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
                **judge_pairs(_answers(bootstrap, arena.out), wanted),
            }
        finally:
            delete_topics(bootstrap, arena.out)
            with contextlib.suppress(OSError):
                shutil.rmtree(arena.folder)

    rows = take_turns(chosen(CONTENDERS, only), rounds, run_once)
    return {"purchases": purchases, "users": USERS, "batches": BATCHES, "contenders": rows}


def _answers(bootstrap: str, topic: str) -> Iterator[tuple[str, int]]:
    """What was said of each user, in order: the last word on a user counts."""
    for _, _, _, value in read_topic(bootstrap, topic):
        row = json.loads(value)
        yield row["user"], int(row["total"])
