"""Growth: how the cost scales with the input (1, 4, 16 times) and with the state (1, 10, 100 times)."""

from __future__ import annotations

import math
import os
import random
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import measure, oracle, throughput
from bench.broker import HEADWATER, create_topic, delete_topics, ensure_visits_topic
from bench.charts import draw_lines
from bench.checkpoints import ensure_generated_checkpoint, ensure_spark_checkpoint, read_stream_times
from bench.contender import SPARK_ENV, Command, Contender, ContenderFailed, RunContext, is_selected, program, run_to_end
from bench.engines import spark_jars
from bench.tables import describe_conditions, last_line, markdown_table, wrap

INPUT_STEPS = (1, 4, 16)
STATE_STEPS = (1, 10, 100)
LOG_STEPS = (250, 1_000, 4_000)
SMALL_BATCHES = 20
SMALL_BATCH_ROWS = 1_000
LIMIT_SECONDS = 900.0
KEY_COUNTS = f"{Path(__file__).parent / 'jobs' / 'key_counts.py'}:KEY_COUNTS"

# Chart, its title, its unit, and the prefixes of the series in it
PLOTS = {
    "growth_input": ("Growing input", "records", ("input-",)),
    "growth_state": ("Growing state", "keys", ("batch-", "state", "key")),
}

Point = tuple[float, float]


def run(
    bootstrap: str, work: Path, *, first_records: int, first_keys: int, rounds: int, only: list[str]
) -> dict[str, Any]:
    """Measure the seconds at each size, and the slope on logarithmic axes: 0 is constant, 1 is linear."""
    records = [first_records * step for step in INPUT_STEPS]
    keys = [first_keys * step for step in STATE_STEPS]
    curves: dict[str, tuple[str, str, Sequence[int], Callable[[int], float]]] = {}
    for slug in ("headwater", "headwater-200k", "tutorial-200k"):
        contender = next(one for one in throughput.CONTENDERS if one.slug == slug)
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
    for slug, name in (("state", "headwater state"), ("key", "headwater state --key")):
        curves[slug] = (
            name,
            "keys",
            keys,
            lambda size, slug=slug: _read_checkpoint(work, slug, ensure_spark_checkpoint(folder, size)),
        )
    curves["log"] = (
        "headwater log",
        "batches",
        LOG_STEPS,
        lambda size: _read_checkpoint(work, "log", ensure_generated_checkpoint(folder, size)),
    )
    return {"series": [_measure_curve(slug, *curves[slug], rounds) for slug in curves if is_selected(slug, only)]}


def _measure_curve(
    slug: str, name: str, unit: str, sizes: Sequence[int], measure_seconds: Callable[[int], float], rounds: int
) -> dict[str, Any]:
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    error = None
    try:
        for _ in range(rounds):
            for size in sizes:
                seconds[size].append(round(measure_seconds(size), 3))
    except ContenderFailed as failure:
        error = str(failure)
    points = [(float(size), statistics.median(found)) for size, found in seconds.items() if found]
    print(f"{slug}: {points} slope {compute_slope(points)} load {os.getloadavg()[0]:.1f}", flush=True)
    listed = [{"size": size, "seconds": found} for size, found in seconds.items()]
    return {"slug": slug, "name": name, "unit": unit, "points": listed, "slope": compute_slope(points), "error": error}


def compute_slope(points: Sequence[Point]) -> float | None:
    """Return the slope of the least-squares line through the points on logarithmic axes."""
    if len(points) < 2:
        return None
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    middle_x, middle_y = statistics.mean(xs), statistics.mean(ys)
    rise = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return round(rise / sum((x - middle_x) ** 2 for x in xs), 2)


def _drain(contender: Contender, bootstrap: str, work: Path, size: int) -> float:
    topic = ensure_visits_topic(bootstrap, size)
    file = oracle.export_topic(bootstrap, topic, work / "oracle")
    context = RunContext(work / "run", bootstrap, topic, f"bench-growth-{contender.slug}", size)
    found = throughput.measure_run(contender, context, file, oracle.compute_bounds(file))
    if not found["correct"]:
        raise ContenderFailed(f"wrong answer: {found}")
    return float(found["seconds"])


def _counting_headwater() -> Contender:
    def command(context: RunContext) -> Command:
        sink = ["--sink", f"kafka://{context.bootstrap}/{context.out}", "--checkpoint", str(context.checkpoint)]
        source = ["--source", f"files:{context.topic}?format=json&maxFilesPerTrigger=1"]
        return Command([HEADWATER, "run", KEY_COUNTS, *source, *sink, "--trigger", "available-now"], SPARK_ENV)

    return Contender("headwater", "Headwater", "durable", command)


def _counting_tutorial() -> Contender:
    def command(context: RunContext) -> Command:
        out = ["--bootstrap", context.bootstrap, "--out", context.out, "--checkpoint", str(context.checkpoint)]
        return program("key_counts.py", "--folder", context.topic, *out, "--jars", spark_jars())

    return Contender("tutorial", "tutorial PySpark", "durable", command)


def _small_batch(contender: Contender, bootstrap: str, work: Path, keys: int) -> float:
    """Return the median time of small batches after one large batch has filled the state."""
    context = RunContext(
        work / "run", bootstrap, str(_ensure_key_files(work, keys)), f"bench-growth-keys-{contender.slug}", keys
    )
    delete_topics(bootstrap, context.out)
    create_topic(bootstrap, context.out)
    try:
        run_to_end(contender, context, seconds=LIMIT_SECONDS)
        return statistics.median(read_stream_times(context.checkpoint).batch_seconds[2 : 1 + SMALL_BATCHES])
    finally:
        delete_topics(bootstrap, context.out)
        shutil.rmtree(context.folder, ignore_errors=True)


def _ensure_key_files(work: Path, keys: int) -> Path:
    """Return a folder with one file of every key, then small ones; Spark reads files in order of modification time."""
    folder = work / "keys" / str(keys)
    if not (folder / f"{SMALL_BATCHES:03d}.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        rng = random.Random(keys)
        for number in range(SMALL_BATCHES + 1):
            chosen = range(keys) if number == 0 else (rng.randrange(keys) for _ in range(SMALL_BATCH_ROWS))
            file = folder / f"{number:03d}.json"
            file.write_text("".join(f'{{"key": "key-{key}"}}\n' for key in chosen))
            os.utime(file, (1_750_000_000 + number, 1_750_000_000 + number))
    return folder


def _read_checkpoint(work: Path, slug: str, checkpoint: Path) -> float:
    """Return the seconds that a command on a checkpoint takes, process start included."""
    arguments = {
        "log": ["log", str(checkpoint), "--json"],
        "state": ["state", str(checkpoint), "--format", "parquet", "--out", str(work / "state.parquet")],
        "key": ["state", str(checkpoint), "--key", "user=user-77", "--json"],
    }
    log = work / "logs" / f"growth-{slug}.log"
    measured = measure.run([HEADWATER, *arguments[slug]], log=log, seconds=LIMIT_SECONDS, env=SPARK_ENV)
    if measured.failed:
        raise ContenderFailed(f"{measured.outcome}: {measured.error}")
    return measured.wall_seconds


def format_table(result: dict[str, Any]) -> str:
    rows = []
    for series in result["series"]:
        points = _median_points(series)
        seconds = " · ".join(f"{size:,.0f}: {value:,.2f}" for size, value in points)
        slope = "" if series["slope"] is None else f"{series['slope']:.2f}"
        rows.append((series["name"], series["unit"], seconds or last_line(series["error"] or ""), slope))
    head = ("command or stream", "grows with", "seconds at each size (median)", "slope")
    title = (
        "Slopes are on logarithmic axes: 0 is a constant cost, 1 is linear growth, below 1 means that a fixed cost is spread "
        "over more input, and above 1 means that the cost grows faster than the input."
    )
    return "\n\n".join([wrap(title), markdown_table(head, rows), describe_conditions(result)])


def summarize(result: dict[str, Any]) -> str:
    slopes = sorted((series["slope"], series["name"]) for series in result["series"] if series["slope"] is not None)
    if not slopes:
        return "growth: no result"
    return f"growth: slopes from {slopes[0][0]} to {slopes[-1][0]} ({slopes[-1][1]}), where 1 is linear"


def draw_plots(result: dict[str, Any]) -> dict[str, str]:
    plots = {}
    for name, (title, unit, prefixes) in PLOTS.items():
        lines = {
            series["name"]: _median_points(series)
            for series in result["series"]
            if series["slug"].startswith(prefixes) and _median_points(series)
        }
        if lines:
            plots[name] = draw_lines(title, lines, unit, "seconds")
    return plots


def _median_points(series: dict[str, Any]) -> list[Point]:
    return [(point["size"], statistics.median(point["seconds"])) for point in series["points"] if point["seconds"]]
