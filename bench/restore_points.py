"""Restore points of a checkpoint with many keys: the time and the space that one takes, and the time to list many.

    python -m bench --workload restore_points [--points 1000]

Spark writes the checkpoint once; it is reused. Everything else is measured without Spark.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.broker import HEADWATER
from bench.checkpoints import ensure_spark_checkpoint
from bench.tables import describe_conditions, markdown_table, wrap
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.keep import drop_point, make_point
from headwater.timemachine.keeping import Keeper, KeepPolicy
from headwater.timemachine.restore import plan_restore

BATCHES = 1_000_000


def run(work: Path, *, keys: int, points: int, rounds: int, only: list[str]) -> dict[str, Any]:  # noqa: ARG001
    """Measure on a copy of a checkpoint with so many keys, with so many points."""
    original = ensure_spark_checkpoint(work / "checkpoints", keys)
    copy = Path(shutil.copytree(original, work / "checkpoints" / "kept", dirs_exist_ok=True))
    try:
        return {"keys": keys, "points": points, "rounds": rounds, **measure(copy, points, rounds)}
    finally:
        shutil.rmtree(copy)


def measure(checkpoint: Path, points: int, rounds: int) -> dict[str, float]:
    """Return seconds and bytes, each the median of the rounds."""
    files, used = LocalTree(checkpoint), _used(checkpoint)
    found: dict[str, float] = {"checkpoint_bytes": used}
    found["keep"] = _median(rounds, lambda number: make_point(files, f"p{number}"))
    found["keep_bytes"] = (_used(checkpoint) - used) / rounds
    found["keep_process"] = _median(rounds, lambda number: _run("keep", checkpoint, f"cold{number}"))
    point = make_point(files, "restored", at="HEAD~1")
    found["plan"] = _median(rounds, lambda _: plan_restore(files, point))
    for number in range(points - 2 * rounds - 1):
        make_point(files, f"more{number}")
    found["list_process"] = _median(rounds, lambda _: _run("kept", checkpoint, "--json"))
    found["all_bytes"] = _used(checkpoint) - used
    found["drop"] = _median(1, lambda _: drop_point(files, "restored"))
    keeper = Keeper(files, KeepPolicy(3_600_000), open_sink=lambda _: files, warn=print)
    keeper._due_ms = time.time_ns()  # none is due
    found["idle_batch"] = _median(1, lambda _: [keeper.after_batch() for _ in range(BATCHES)]) / BATCHES
    return found


def _median(rounds: int, action: Callable[[int], object]) -> float:
    seconds = []
    for number in range(rounds):
        started = time.perf_counter()
        action(number)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _run(*arguments: object) -> None:
    subprocess.run([HEADWATER, *map(str, arguments)], check=True, capture_output=True)


def _used(folder: Path) -> int:
    """Return the bytes of disk space below a folder; a file with several links counts once."""
    seen: dict[int, int] = {}
    for place, folders, names in os.walk(folder):
        for name in (*names, *folders):
            info = (Path(place) / name).lstat()
            seen[info.st_ino] = info.st_blocks * 512
    return sum(seen.values())


def format_table(result: dict[str, Any]) -> str:
    title = (
        f"Restore points of a local checkpoint with {result['keys']:,} keys in RocksDB, which takes "
        f"{result['checkpoint_bytes'] / 1e6:,.0f} MB."
    )
    rows = [
        ("make a point", _milliseconds(result["keep"])),
        ("`headwater keep`, with the start of the process", _milliseconds(result["keep_process"])),
        ("plan a rewind to a point", _milliseconds(result["plan"])),
        ("drop a point", _milliseconds(result["drop"])),
        (f"`headwater kept` with {result['points']:,} points", _milliseconds(result["list_process"])),
        ("`--keep-every`, a batch without a point", f"{result['idle_batch'] * 1e6:,.2f} µs"),
        ("disk space of a point", f"{result['keep_bytes'] / 1e3:,.0f} kB"),
        (f"disk space of {result['points']:,} points of one batch", f"{result['all_bytes'] / 1e6:,.0f} MB"),
    ]
    return "\n\n".join([wrap(title), markdown_table(("", "time or space"), rows), describe_conditions(result)])


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def summarize(result: dict[str, Any]) -> str:
    return (
        f"restore points: {_milliseconds(result['keep'])} for one, "
        f"{_milliseconds(result['list_process'])} to list {result['points']:,}"
    )


def draw_plots(result: dict[str, Any]) -> dict[str, str]:  # noqa: ARG001  the interface of a workload
    return {}
