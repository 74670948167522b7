"""Restore points of a checkpoint with many keys: the time and the room that one takes, and the time to list many.

python -m bench.restore_points                     a million keys, and 1,000 points
python -m bench.restore_points --keys 10000 --points 100
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.broker import HEADWATER
from bench.checkpoints import ensure_spark_checkpoint
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.keep import drop_point, make_point
from headwater.timemachine.keeping import Keeper, KeepPolicy
from headwater.timemachine.restore import plan_restore

WORK = Path(__file__).parent / ".work" / "checkpoints"
ROUNDS, BATCHES = 5, 1_000_000


def main() -> None:
    """Measure and print one line for each result."""
    parser = argparse.ArgumentParser(prog="python -m bench.restore_points", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=1_000)
    options = parser.parse_args()
    original = ensure_spark_checkpoint(WORK, options.keys)
    copy = Path(shutil.copytree(original, WORK / "kept", dirs_exist_ok=True))
    try:
        measure(copy, options.points)
    finally:
        shutil.rmtree(copy)


def measure(checkpoint: Path, points: int) -> None:
    files, used = LocalTree(checkpoint), _used(checkpoint)
    print(f"checkpoint: {used / 1e6:,.0f} MB")
    seconds = [_timed(lambda number=number: make_point(files, f"p{number}")) for number in range(ROUNDS)]
    print(
        f"a restore point: {statistics.median(seconds) * 1000:,.0f} ms, {(_used(checkpoint) - used) / ROUNDS / 1e3:,.0f} kB"
    )
    cold = [_timed(lambda number=number: _run("keep", checkpoint, f"cold{number}")) for number in range(ROUNDS)]
    print(f"headwater keep, as a new process: {statistics.median(cold) * 1000:,.0f} ms")
    point = make_point(files, "restored", at="HEAD~1")
    print(f"plan of a restore: {_timed(lambda: plan_restore(files, point)) * 1000:,.0f} ms")
    for number in range(points - 2 * ROUNDS - 1):
        make_point(files, f"more{number}")
    listing = [_timed(lambda: _run("kept", checkpoint, "--json")) for _ in range(ROUNDS)]
    print(f"headwater kept with {points:,} points, as a new process: {statistics.median(listing) * 1000:,.0f} ms")
    print(f"{points:,} points: {(_used(checkpoint) - used) / 1e6:,.1f} MB")
    print(f"dropping one: {_timed(lambda: drop_point(files, 'restored')) * 1000:,.0f} ms")
    keeper = Keeper(files, KeepPolicy(3_600_000), open_sink=lambda _: files, warn=print)
    keeper._due_ms = time.time_ns()  # none is due
    each = _timed(lambda: [keeper.after_batch() for _ in range(BATCHES)]) / BATCHES
    print(f"--keep-every on a batch without a point: {each * 1e6:,.2f} µs")


def _timed(action) -> float:  # type: ignore[no-untyped-def]
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _run(*arguments: object) -> None:
    subprocess.run([str(HEADWATER), *map(str, arguments)], check=True, capture_output=True)


def _used(folder: Path) -> int:
    """Return the bytes of disk space below a folder; a file with several links counts once."""
    seen: dict[int, int] = {}
    for place, folders, names in os.walk(folder):
        for name in (*names, *folders):
            info = (Path(place) / name).lstat()
            seen[info.st_ino] = info.st_blocks * 512
    return sum(seen.values())


if __name__ == "__main__":
    sys.exit(main())
