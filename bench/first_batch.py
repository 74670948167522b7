"""Measure how long ``headwater run`` takes from its start to the commit of its first batch, of a stateful job over files.

Run it with ``python -m bench.first_batch``. It prints one JSON line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.scenario_speed import make_row

JOB = "browser-stats-stateful"


def measure_start(folder: Path) -> float:
    """Return the seconds until the commit appears, and stop the job."""
    (folder / "in").mkdir()
    (folder / "in" / "visits.json").write_text(f"{json.dumps(make_row(JOB, 0))}\n")
    commit = folder / "checkpoint" / "commits" / "0"
    command = [
        sys.executable,
        "-m",
        "headwater",
        "run",
        JOB,
        "--source",
        f"files:{folder / 'in'}",
        "--sink",
        "console:",
    ]
    started = time.perf_counter()
    with subprocess.Popen(
        [*command, "--checkpoint", folder / "checkpoint"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        while not commit.exists():
            if job.poll() is not None:
                raise SystemExit(f"headwater run ended with status {job.returncode} before its first batch")
            time.sleep(0.005)
        seconds = time.perf_counter() - started
        job.terminate()
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure_start(Path(folder))
    print(json.dumps({"first_batch_seconds": round(seconds, 2)}))


if __name__ == "__main__":
    main()
