"""Workload E, growth: how the cost follows the input (times 1, 4, 16) and the state (times 1, 10, 100)."""

from __future__ import annotations

import math
import os
import random
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import measure, oracle, workload_a
from bench.broker import HEADWATER, create_topic, delete_topics, visits_topic
from bench.checkpoints import logged, with_state
from bench.contender import UTC, Arena, Command, Contender, Failed, program, run_to_end
from bench.spark_times import stream_times

INPUT_STEPS = (1, 4, 16)
STATE_STEPS = (1, 10, 100)
LOG_STEPS = (250, 1_000, 4_000)
SMALL_BATCHES = 20
SMALL_BATCH_ROWS = 1_000
LIMIT_SECONDS = 900.0
KEY_COUNTS = f"{Path(__file__).parent / 'jobs' / 'key_counts.py'}:KEY_COUNTS"

Point = tuple[float, float]


def run(
    bootstrap: str, work: Path, *, first_records: int, first_keys: int, rounds: int, only: list[str]
) -> dict[str, Any]:
    """Seconds at each size, in turns, and the slope on logarithmic axes: 0 does not grow, 1 grows as its input does."""
    records = [first_records * step for step in INPUT_STEPS]
    keys = [first_keys * step for step in STATE_STEPS]
    curves: dict[str, tuple[str, str, Sequence[int], Callable[[int], float]]] = {}
    for slug in ("headwater", "headwater-200k", "tutorial-200k"):
        contender = next(one for one in workload_a.CONTENDERS if one.slug == slug)
        curves[f"input-{slug}"] = (
            contender.name,
            "records",
            records,
            lambda size, one=contender: _drain(one, bootstrap, work, size),
        )
    for contender in (_counting_headwater(), _counting_tutorial()):
        curves[f"batch-{contender.slug}"] = (
            f"{contender.name}: batch of {SMALL_BATCH_ROWS:,} rows",
            "keys in the state",
            keys,
            lambda size, one=contender: _small_batch(one, bootstrap, work, size),
        )
    folder = work / "checkpoints"
    curves["state"] = ("headwater state", "keys", keys, lambda size: _look(work, "state", with_state(folder, size)))
    curves["key"] = ("headwater state --key", "keys", keys, lambda size: _look(work, "key", with_state(folder, size)))
    curves["log"] = ("headwater log", "batches", LOG_STEPS, lambda size: _look(work, "log", _logged(folder, size)))
    wanted = [slug for slug in curves if not only or any(slug == name or slug.startswith(f"{name}-") for name in only)]
    return {"series": [_curve(slug, *curves[slug], rounds) for slug in wanted]}


def _curve(
    slug: str, name: str, unit: str, sizes: Sequence[int], measured: Callable[[int], float], rounds: int
) -> dict[str, Any]:
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    error = None
    try:
        for _ in range(rounds):
            for size in sizes:
                seconds[size].append(round(measured(size), 3))
    except Failed as failure:
        error = str(failure)
    points = [(float(size), statistics.median(found)) for size, found in seconds.items() if found]
    print(f"{slug}: {points} slope {slope(points)} load {os.getloadavg()[0]:.1f}", flush=True)
    listed = [{"size": size, "seconds": found} for size, found in seconds.items()]
    return {"slug": slug, "name": name, "unit": unit, "points": listed, "slope": slope(points), "error": error}


def slope(points: Sequence[Point]) -> float | None:
    """Of the straight line through the points on logarithmic axes, by least squares."""
    if len(points) < 2:
        return None
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    middle_x, middle_y = statistics.mean(xs), statistics.mean(ys)
    rise = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return round(rise / sum((x - middle_x) ** 2 for x in xs), 2)


def _drain(contender: Contender, bootstrap: str, work: Path, size: int) -> float:
    topic = visits_topic(bootstrap, size)
    file = oracle.records_of(bootstrap, topic, work / "oracle")
    arena = Arena(work / "run", bootstrap, topic, f"bench-e-{contender.slug}", size)
    found = workload_a.measured_run(contender, arena, file, oracle.bounds(file))
    if not found["correct"]:
        raise Failed(f"wrong answer: {found}")
    return float(found["seconds"])


def _counting_headwater() -> Contender:
    def command(arena: Arena) -> Command:
        sink = ["--sink", f"kafka://{arena.bootstrap}/{arena.out}", "--checkpoint", str(arena.checkpoint)]
        source = ["--source", f"files:{arena.topic}?format=json&maxFilesPerTrigger=1"]
        return Command([HEADWATER, "run", KEY_COUNTS, *source, *sink, "--trigger", "available-now"], UTC)

    return Contender("headwater", "Headwater", "durable", command)


def _counting_tutorial() -> Contender:
    def command(arena: Arena) -> Command:
        out = ["--bootstrap", arena.bootstrap, "--out", arena.out, "--checkpoint", str(arena.checkpoint)]
        return program("key_counts.py", "--folder", arena.topic, *out, "--jars", workload_a.spark_jars())

    return Contender("tutorial", "tutorial PySpark", "durable", command)


def _small_batch(contender: Contender, bootstrap: str, work: Path, keys: int) -> float:
    """The median time of small batches on a state that one large batch has filled before."""
    arena = Arena(work / "run", bootstrap, str(_files_of_keys(work, keys)), f"bench-e-keys-{contender.slug}", keys)
    delete_topics(bootstrap, arena.out)
    create_topic(bootstrap, arena.out)
    try:
        run_to_end(contender, arena, seconds=LIMIT_SECONDS)
        return statistics.median(stream_times(arena.checkpoint).batch_seconds[2 : 1 + SMALL_BATCHES])
    finally:
        delete_topics(bootstrap, arena.out)
        shutil.rmtree(arena.folder, ignore_errors=True)


def _files_of_keys(work: Path, keys: int) -> Path:
    """One file with every key, then small ones with some of them; Spark takes files by their time of modification."""
    folder = work / "keys" / str(keys)
    if not (folder / f"{SMALL_BATCHES:03d}.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        dice = random.Random(keys)
        for number in range(SMALL_BATCHES + 1):
            chosen = range(keys) if number == 0 else (dice.randrange(keys) for _ in range(SMALL_BATCH_ROWS))
            file = folder / f"{number:03d}.json"
            file.write_text("".join(f'{{"key": "key-{key}"}}\n' for key in chosen))
            os.utime(file, (1_750_000_000 + number, 1_750_000_000 + number))
    return folder


def _logged(folder: Path, batches: int) -> Path:
    place = folder / f"log-{batches}"
    if not (place / "commits" / str(batches - 1)).exists():
        shutil.rmtree(place, ignore_errors=True)
        logged(place, batches)
    return place


def _look(work: Path, verb: str, checkpoint: Path) -> float:
    words = {
        "log": ["log", str(checkpoint), "--json"],
        "state": ["state", str(checkpoint), "--format", "parquet", "--out", str(work / "look.parquet")],
        "key": ["state", str(checkpoint), "--key", "user=user-77", "--json"],
    }
    log = work / "logs" / f"e-{verb}.log"
    measured = measure.run([HEADWATER, *words[verb]], log=log, seconds=LIMIT_SECONDS, env=UTC)
    if measured.failed:
        raise Failed(measured.complaint)
    return measured.wall_seconds
