"""Run golden scenarios and rewinds on several versions of PySpark: `make matrix`, about an hour for all of them.

  make matrix                          3.5, 4.0, 4.1, 4.2 and 4.3
  make matrix VERSIONS="4.1 4.3"       some of them
  make matrix MATRIX_ARGS=--again      sets that have a result are run again

Each version gets an environment of its own below `.matrix`. A set of tests that has a result there is not run again, so
that an interrupted run continues. The results are written as a table into docs/limits.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from .environments import environment, pyspark_version
from .results import Outcome, read_report, table, with_table

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".matrix"
PAGE = ROOT / "docs" / "limits.md"
VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")

REWINDS = {
    "rewinds of state": ["tests/timemachine/test_state_on_spark.py::test_all_operators_on_all_stores"],
    "rewinds of plain programs": ["tests/timemachine/test_plain_on_spark.py"],
}
JOBS = {
    "golden scenarios": ["tests/jobs/test_gallery_golden.py"],
    "streaming equals batch": ["tests/jobs/test_batch_oracle.py"],
    "replay": ["tests/spark/test_replay.py"],
    "late and malformed records": ["tests/spark/test_dropped.py"],
    "jobs in Python": ["tests/spark/test_running.py"],
    "`run` on the command line": ["tests/cli/test_run.py"],
    "rewinds of sources and sinks": ["tests/timemachine/test_sources_and_sinks_on_spark.py"],
}


def sets_of(version: str) -> dict[str, list[str]]:
    """Return the files of tests for a version. Headwater runs no jobs on 3.5: plain programs write and continue there."""
    return REWINDS if version.startswith("3.") else {**JOBS, **REWINDS}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="3.5, 4.0, …; all by default")
    parser.add_argument("--again", action="store_true", help="also run sets that have a result")
    parser.add_argument("--only", metavar="SET", action="append", help="one set of tests; may be repeated")
    asked = parser.parse_args()
    failed = 0
    for version in asked.versions or VERSIONS:
        python = environment(FOLDER, version)
        for name, files in sets_of(version).items():
            report = report_file(version, name)
            if (asked.only and name not in asked.only) or (report.exists() and not asked.again):
                continue
            failed += not run_set(python, version, name, files)
        write_page()
    return 1 if failed else 0


def report_file(version: str, name: str) -> Path:
    return FOLDER / "results" / version / f"{name.replace('`', '').replace(' ', '-')}.xml"


def run_set(python: Path, version: str, name: str, files: list[str]) -> bool:
    """Run one set of tests; return whether none failed. The output is kept beside the report."""
    report = report_file(version, name)
    report.parent.mkdir(parents=True, exist_ok=True)
    draft, started = report.with_suffix(".draft"), time.monotonic()
    print(f"{version}  {name} …", flush=True)
    # The complete combinations of operators and stores are slow; samples are enough for the rest.
    chosen = "slow or not slow" if name in REWINDS else "not slow"
    command = [str(python), "-m", "pytest", *files, "-m", chosen, "-q", "--tb=short", f"--junitxml={draft}"]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    with report.with_suffix(".log").open("w") as log:
        subprocess.run(
            command,
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": paths},
            check=False,
        )
    if not draft.exists():
        print(f"{version}  {name}: no result; see {report.with_suffix('.log')}")
        return False
    draft.rename(report)
    found = read_report(report)
    counts = {outcome: sum(one.outcome == outcome for one in found) for outcome in ("passed", "failed", "skipped")}
    shown = ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)
    print(f"{version}  {name}: {shown} in {time.monotonic() - started:.0f} s", flush=True)
    return counts["failed"] == 0


def write_page() -> None:
    """Write the results of all versions that have some into the page."""
    reports: dict[str, dict[str, list[Outcome]]] = {}
    for version in VERSIONS:
        done = {name: report_file(version, name) for name in sets_of(version)}
        found = {name: read_report(report) for name, report in done.items() if report.exists()}
        if found:
            reports[pyspark_version(environment(FOLDER, version))] = found
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), table(reports)), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
