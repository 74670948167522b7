"""Run the tests that crash changes at points of their file-system operations, and publish the number of points.

Writes the table of docs/reliability.md. ``--sample`` leaves out the tests of every point on all operators and state
stores.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- points: begin -->", "<!-- points: end -->"
FILES = (
    "crash_safety",
    "table_crash_safety",
    "crash_on_real_media",
    "crashed_trees_on_spark",
    "fork",
    "seed",
    "move",
    "promote",
    "cascade",
)
LINE = re.compile(r"(?:^|\.)(?P<what>[\w -]+?)(?: on (?P<medium>\w+))?: (?P<points>\d+) points$", re.MULTILINE)
STARTED = re.compile(r"points, Spark started on (\d+) trees")
MEDIA = {
    "crashingdisk": "local disk, in memory",
    "crashingobjectstore": "object store, in memory",
    "a disk": "local disk",
    "an S3 server": "S3 server",
}


def count_points(output: str) -> Counter[str]:
    """Return the points by medium, from what the tests print."""
    found: Counter[str] = Counter()
    for match in LINE.finditer(output):
        found[MEDIA[match["medium"] or match["what"]]] += int(match["points"])
    return found


def count_trees(output: str) -> int:
    """Return the number of different trees that Spark was started on."""
    return sum(map(int, STARTED.findall(output)))


def format_table(points: Counter[str], trees: int, version: str) -> str:
    rows = [f"| {medium} | {points[medium]:,} |" for medium in MEDIA.values() if points[medium]]
    total = f"| all, at version {version} | {points.total():,} |"
    spark = [f"| different trees that Spark was started on | {trees:,} |"] if trees else []
    return "\n".join(["| medium | crash points tested |", "|---|---:|", *rows, total, *spark])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sample", action="store_true", help="without the test of every point on all operators and state stores"
    )
    options = parser.parse_args()
    files = [f"tests/timemachine/test_{name}.py" for name in FILES]
    # Two processes, which do not print what a test prints before all tests have ended.
    command = [sys.executable, "-m", "pytest", "-v", "-rP", "-n", "2", "-m", "slow or not slow", *files]
    command += ["-k", "not over_the_matrix"] if options.sample else []
    output = ""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        for line in tests.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            output += line
    if tests.returncode:
        return tests.returncode
    version = subprocess.run(
        ["git", "describe", "--always"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table = format_table(count_points(output), count_trees(output), version)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
