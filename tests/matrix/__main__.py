"""Run golden scenarios, rewinds and commands on several versions of PySpark: `make matrix`, about an hour for all.

  make matrix                          3.5, 4.0, 4.1, 4.2 and 4.3
  make matrix VERSION=4.3              one of them, or several: VERSION="4.1 4.3"
  make matrix MATRIX_ARGS=--again      from scratch, after an interrupted run
  make matrix MATRIX_ARGS=--failed     only the tests that failed in the last run

Each version gets an environment of its own, with its newest patch, in the user's cache folder. Ctrl-C ends the current
tests; what has passed until then is not run again by the next `make matrix`. The results are written as a table into
docs/limits.md after each set of tests; versions that were not run keep their column.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headwater.jars.resolve import cache_folder, jar_paths

from .environments import NoEnvironment, environment, pyspark_version
from .progress import Display, outcomes_in
from .results import Column, RunLog, column_of, merge_reports, read_report, with_columns
from .sets import VERSIONS, TestSet, sets_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "limits.md"
SECONDS_TO_STOP = 60


def main() -> int:
    asked = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has made its background jobs ignore Ctrl-C
        signal.signal(number, signal.default_int_handler)
    log = RunLog(asked.results)
    if asked.again:
        log.forget()
    try:
        failed = [one for version in asked.version or VERSIONS for one in _run_version(version, asked, log)]
    except KeyboardInterrupt:
        print("\ninterrupted; the next make matrix continues from here", file=sys.stderr)
        return 130
    if failed:
        print(f"failed: {'; '.join(failed)}")
        return 1
    log.forget()
    print("all passed")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="*", metavar="VERSION", help="3.5, 4.0, …; all by default")
    parser.add_argument("--again", action="store_true", help="also run what has passed in an interrupted run")
    parser.add_argument("--failed", action="store_true", help="only the tests that failed in the last run")
    parser.add_argument("--only", metavar="SET", action="append", help="one set of tests; may be repeated")
    folder = os.environ.get("MATRIX_FOLDER") or cache_folder() / "matrix"
    parser.add_argument("--folder", type=Path, default=folder, help="where the environments are (%(default)s)")
    parser.add_argument(
        "--results", type=Path, default=ROOT / ".matrix", help="where reports and logs go (%(default)s)"
    )
    asked = parser.parse_args()
    unknown = set(asked.version) - set(VERSIONS)
    if unknown:
        parser.error(f"unknown version {', '.join(sorted(unknown))}: there are {', '.join(VERSIONS)}")
    return asked


def _run_version(version: str, asked: argparse.Namespace, log: RunLog) -> list[str]:
    """Run the sets of a version that have not passed yet; return those that failed, and update the page."""
    chosen = [one for one in sets_of(version) if not asked.only or one.name in asked.only]
    if asked.failed:
        chosen = [failed for one in chosen if (failed := _failed_of(log.report(version, one.name), one))]
    remaining = [one for one in chosen if not log.has_passed(version, one.name)]
    if len(remaining) < len(chosen):
        print(f"{version}: {len(chosen) - len(remaining)} of {len(chosen)} sets passed in the interrupted run")
    if not remaining:
        return []
    try:
        python = environment(asked.folder.absolute(), version, print)
    except NoEnvironment as problem:
        print(f"{version}: cannot install PySpark {version}\n{problem}")
        return [f"PySpark {version} cannot be installed"]
    patch = pyspark_version(python)
    failed = []
    for one in remaining:
        if _run_set(python, patch, one, log.report(version, one.name)):
            log.add_passed(version, one.name)
        else:
            failed.append(f"{patch} {one.name}")
        log.note_patch(version, patch)
        _write_page(log)
    return failed


def _failed_of(report: Path, one: TestSet) -> TestSet | None:
    """Return a set with the tests of the last report that failed; None if there are none, or no report."""
    tests = tuple(found.node for found in read_report(report) if found.outcome == "failed") if report.exists() else ()
    return replace(one, tests=tests, part=True) if tests else None


def _run_set(python: Path, patch: str, one: TestSet, report: Path) -> bool:
    """Run one set of tests; return whether none failed. The output is kept beside the report."""
    draft, output, started = report.with_suffix(".draft"), report.with_suffix(".log"), time.monotonic()
    report.parent.mkdir(parents=True, exist_ok=True)
    display = Display(f"{patch}  {one.name}")
    command = [
        str(python),
        "-m",
        "pytest",
        *one.tests,
        *one.options,
        "-m",
        one.marks,
        "-v",
        "--tb=short",
        f"--junitxml={draft}",
    ]
    try:
        with output.open("w") as log:
            run_command(command, log.fileno(), _variables(patch), lambda: display.show(outcomes_in(output)))
    except KeyboardInterrupt:
        draft.unlink(missing_ok=True)
        raise
    if not draft.exists():
        display.end(f"no result; see {output}")
        return False
    ran = read_report(draft)
    if one.part:
        merge_reports(report, draft)
    else:
        draft.rename(report)
    found = read_report(report)
    counts = {outcome: sum(each.outcome == outcome for each in found) for outcome in ("passed", "failed", "skipped")}
    shown = ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)
    display.end(f"{shown or 'no tests'} in {time.monotonic() - started:.0f} s")
    for each in found:
        if each.outcome == "failed":
            print(f"    failed: {each.name}[{each.argument}]: {each.reason}")
    return bool(ran) and counts["failed"] == 0


def _variables(patch: str) -> dict[str, str]:
    """Return the environment variables of the tests. Headwater has no Kafka connector and no broker for 3.5."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])}
    if patch.startswith("3."):
        jars = jar_paths("spark", ivy_file=Path(__file__).with_name("ivy-3.5.xml"), on_fetch=print)
        found["MATRIX_KAFKA_JARS"] = ",".join(map(str, jars))
        found["MATRIX_BROKER_COMMAND"] = str(Path(sys.executable).with_name("headwater"))
    return found


def run_command(command: list[str], output: int, variables: dict[str, str], every_second: Callable[[], None]) -> None:
    """Run a command in a session of its own. On Ctrl-C it gets the signal, and time to stop its brokers and databases."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=variables, start_new_session=True
    )
    try:
        while True:
            try:
                process.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                every_second()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=SECONDS_TO_STOP)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what the tests started and left behind, such as a JVM
        process.wait()


def _write_page(log: RunLog) -> None:
    """Write the results of all versions that have reports into the page. It keeps what it shows of the others."""
    columns: list[Column] = []
    for version in VERSIONS:
        done = [log.report(version, one.name) for one in sets_of(version)]
        found = [outcome for report in done if report.exists() for outcome in read_report(report)]
        if found:
            columns.append(column_of(log.patch(version), found))
    PAGE.write_text(with_columns(PAGE.read_text("utf-8"), columns), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
