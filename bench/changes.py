"""Changes of the state of a checkpoint with many keys: edit, migrate and seed, each beside what Spark takes.

    python -m bench --workload changes [--keys 1000000]

Every change is a command in a process of its own, on a copy of a checkpoint that Spark wrote once. ``migrate`` is compared
with Spark's own repartitioning of the same state, and ``seed`` with a run of the same job on the same files.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.broker import HEADWATER, PARTITIONS, create_topic, delete_topics
from bench.checkpoints import ensure_spark_checkpoint
from bench.measure import Measurement
from bench.measure import run as run_program
from bench.tables import describe_conditions, markdown_table, wrap

JOBS = Path(__file__).with_name("jobs") / "visit_counts.py"
TOPIC = "visit-counts"
SECONDS = 1200.0


@dataclass(frozen=True)
class Place:
    """Where a command works: a copy of the checkpoint, a new checkpoint, the input of the first batch, and a broker."""

    copy: Path
    new: Path
    history: Path
    bootstrap: str
    keys: int


Command = Callable[[Place], Sequence[object]]
COMMANDS: dict[str, Command] = {
    "edit": lambda at: ("edit", at.copy, "--key", f"user=user-{at.keys // 2}", "--set", "count=77"),
    "store": lambda at: ("migrate", at.copy, "--store", "hdfs"),
    "format": lambda at: ("migrate", at.copy, "--checkpoint-format", "2"),
    "migrate": lambda at: ("migrate", at.copy, "--job", f"{JOBS}:CHANGED", "--source", f"files:{at.history}"),
    "repartition": lambda at: ("repartition", at.copy, "3"),
    "run": lambda at: (
        *("run", f"{JOBS}:FROM_KAFKA", "--source", f"files:{at.history}?format=parquet"),
        *("--checkpoint", at.new, "--trigger", "available-now"),
    ),
    "seed": lambda at: (
        *("seed", f"{JOBS}:FROM_KAFKA", "--source", f"kafka://{at.bootstrap}/{TOPIC}"),
        *("--from", f"files:{at.history}?format=parquet", "--at", ",".join(f"{one}:0" for one in range(PARTITIONS))),
        *("--checkpoint", at.new, "--output", "drop"),
    ),
}
WITHOUT_CONFIRMATION = {"run"}
LABELS = {
    "edit": "`edit` of one key",
    "store": "`migrate --store hdfs`",
    "format": "`migrate --checkpoint-format 2`",
    "migrate": "`migrate --job`, an aggregate is added",
    "repartition": "`repartition`, Spark's own rewrite of the state",
    "seed": "`seed` from files",
    "run": "`run` of the same job on the same files",
}
# Numerator, denominator, description, target
RATIOS = (
    ("migrate", "repartition", "seconds of `migrate --job` to those of Spark's repartitioning", "at most 2"),
    ("run", "seed", "throughput of `seed` to that of the job on files", "at least 0.9"),
)


def run(bootstrap: str, work: Path, *, keys: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """Measure every command on a state with so many keys, the commands in turn."""
    original = ensure_spark_checkpoint(work / "checkpoints", keys)
    home = work / "changes"
    names = [name for name in COMMANDS if not only or name in only]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    create_topic(bootstrap, TOPIC)
    try:
        for number in range(rounds):
            for name in names:
                shutil.rmtree(home, ignore_errors=True)
                shutil.copytree(original, home / "copy")
                place = Place(home / "copy", home / "new", original.parent / "input/0", bootstrap, keys)
                result = _measure(name, COMMANDS[name](place), home / f"{name}-{number}.log")
                found[name].append(
                    {
                        "seconds": result.wall_seconds,
                        "cpu_seconds": result.cpu_seconds,
                        "megabytes": result.peak_megabytes,
                    }
                )
    finally:
        delete_topics(bootstrap, TOPIC)
        shutil.rmtree(home, ignore_errors=True)
    return {"keys": keys, "rounds": rounds, "commands": found}


def _measure(name: str, arguments: Sequence[object], log: Path) -> Measurement:
    confirmed = [] if name in WITHOUT_CONFIRMATION else ["--yes"]
    result = run_program([HEADWATER, *map(str, arguments), *confirmed], log=log, seconds=SECONDS, cwd=log.parent)
    if result.failed:
        raise RuntimeError(f"headwater {' '.join(map(str, arguments))} {result.outcome}: {result.error}")
    return result


def _median(result: dict[str, Any], name: str, what: str) -> float | None:
    runs = result["commands"].get(name)
    return statistics.median(run[what] for run in runs) if runs else None


def _ratio(result: dict[str, Any], numerator: str, denominator: str) -> float | None:
    first, second = _median(result, numerator, "seconds"), _median(result, denominator, "seconds")
    return None if first is None or not second else first / second


def format_table(result: dict[str, Any]) -> str:
    title = (
        f"Changes of a local checkpoint with {result['keys']:,} keys in RocksDB with changelogs, two partitions. Each "
        "is a command in a process of its own, the start of Python and, for the last four, of Spark included."
    )
    rows = [
        (
            LABELS[name],
            f"{_median(result, name, 'seconds'):,.1f}",
            f"{_median(result, name, 'cpu_seconds'):,.1f}",
            f"{_median(result, name, 'megabytes'):,.0f}",
        )
        for name in LABELS
        if name in result["commands"]
    ]
    ratios = [
        f"- {description}: {ratio:.2f} (goal: {target})"
        for numerator, denominator, description, target in RATIOS
        if (ratio := _ratio(result, numerator, denominator)) is not None
    ]
    table = markdown_table(("command", "seconds", "CPU seconds", "peak MB"), rows)
    parts = [wrap(title), table, "\n".join(ratios), describe_conditions(result)]
    return "\n\n".join(part for part in parts if part)


def summarize(result: dict[str, Any]) -> str:
    edit, migrate, seed = (
        _median(result, "edit", "seconds"),
        _ratio(result, *RATIOS[0][:2]),
        _ratio(result, *RATIOS[1][:2]),
    )
    found = [
        None if edit is None else f"edit of one of {result['keys']:,} keys {edit:.1f} s",
        None if migrate is None else f"migrate {migrate:.2f} times Spark's repartitioning",
        None if seed is None else f"seed {seed:.2f} of the job's throughput",
    ]
    return "changes: " + ", ".join(text for text in found if text)


def draw_plots(result: dict[str, Any]) -> dict[str, str]:  # noqa: ARG001  the interface of a workload
    return {}
