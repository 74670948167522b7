"""Workload B, latency: a steady stream of visits, and how long it takes until one is in the output."""

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
from bench.contender import Arena, Contender, Failed, chosen, take_turns
from bench.traffic import Reader, Traffic, latencies_of_records, latencies_of_updates
from bench.workload_a import flink, headwater, kafka_streams, tutorial

FIRST_OUTPUT_SECONDS = 300.0
WARM_SECONDS = 15.0
DRAIN_SECONDS = 20.0
PASSING_ON = ("headwater-passed-on", "headwater-real-time")
PASSED_ON = f"{Path(__file__).parent / 'jobs' / 'passed_on.py'}:PASSED_ON"


@dataclass(frozen=True)
class Course:
    """How hard and how long."""

    rate: int = 1000
    seconds: float = 60.0


CONTENDERS = (
    Contender("headwater", "Headwater, stateful", "durable", headwater),
    Contender(
        "headwater-stateless",
        "Headwater, per batch, no state",
        "none kept",
        lambda arena: headwater(arena, job="browser-stats-stateless"),
    ),
    Contender(
        "headwater-passed-on",
        "Headwater, records passed on",
        "none kept",
        lambda arena: headwater(arena, job=PASSED_ON),
    ),
    Contender(
        "headwater-real-time",
        "Headwater, records passed on, real-time trigger",
        "none kept",
        lambda arena: headwater(arena, "--trigger", "real-time 5 seconds", job=PASSED_ON),
    ),
    Contender("tutorial", "tutorial PySpark, stateful", "durable", lambda arena: tutorial(arena, "--forever")),
    Contender("streams", "Kafka Streams, no cache", "durable", lambda arena: kafka_streams(arena, 1, 0)),
    Contender("flink", "PyFlink, a row for each update", "durable", lambda arena: flink(arena, "--updates")),
)


def run(bootstrap: str, work: Path, *, course: Course, rounds: int, only: list[str]) -> dict[str, Any]:
    """Every contender in turns, each on a fresh topic."""

    def run_once(contender: Contender, number: int) -> dict[str, Any]:
        name = f"bench-b-{contender.slug}-{number}"
        arena = Arena(work / "run", bootstrap, f"{name}-in", f"{name}-out", 0)
        try:
            return _measured(contender, arena, course)
        finally:
            delete_topics(bootstrap, name)
            with contextlib.suppress(OSError):
                shutil.rmtree(arena.folder)

    rows = take_turns(chosen(CONTENDERS, only), rounds, run_once)
    return {"rate": course.rate, "seconds": course.seconds, "warm_seconds": WARM_SECONDS, "contenders": rows}


def _measured(contender: Contender, arena: Arena, course: Course) -> dict[str, Any]:
    delete_topics(arena.bootstrap, arena.out.removesuffix("-out"))
    for topic in (arena.topic, arena.out):
        create_topic(arena.bootstrap, topic)
    shutil.rmtree(arena.folder, ignore_errors=True)
    arena.folder.mkdir(parents=True)
    command = contender.command(arena)
    log = arena.folder.parent / "logs" / f"{arena.out}.log"
    traffic = Traffic(arena.bootstrap, arena.topic, course.rate)
    reader = Reader(arena.bootstrap, arena.out, PARTITIONS)
    with measure.running(command.words, log=log, env=command.env, cwd=arena.folder) as contest:
        traffic.start()
        reader.start()
        try:
            _wait_for(reader, contest, log)
            time.sleep(WARM_SECONDS)
            begin = time.time()
            time.sleep(course.seconds)
            judged = [visit for visit in list(traffic.sent) if visit[2] >= begin]
            traffic.stop()
            latencies = latencies_of_records if contender.slug in PASSING_ON else latencies_of_updates
            deadline = time.time() + DRAIN_SECONDS
            while None in (found := latencies(judged, list(reader.got))) and time.time() < deadline:
                time.sleep(0.5)
        finally:
            traffic.stop()
            reader.stop()
    assert contest.result is not None
    answered = sorted(value for value in found if value is not None)
    if not answered:
        raise Failed("nothing that was sent in the measured time came out")
    return {
        "records": len(judged),
        "unanswered": len(found) - len(answered),
        "p50_ms": round(statistics.median(answered) * 1000, 1),
        "p99_ms": round(answered[int(len(answered) * 0.99)] * 1000, 1),
        "max_ms": round(answered[-1] * 1000, 1),
        "cpu_seconds": contest.result.cpu_seconds,
        "wall_seconds": contest.result.wall_seconds,
        "peak_megabytes": contest.result.peak_megabytes,
    }


def _wait_for(reader: Reader, contest: measure.Running, log: Path) -> None:
    deadline = time.time() + FIRST_OUTPUT_SECONDS
    while not reader.got:
        if contest.process.poll() is not None or time.time() > deadline:
            words = log.read_text(errors="replace").strip()[-800:]
            raise Failed(f"gave no output within {FIRST_OUTPUT_SECONDS:.0f} s: {words}")
        time.sleep(0.1)
