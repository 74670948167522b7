"""Run random stories for some minutes, or repeat one by its seed."""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.matrix import environments

from headwater.jars.resolve import cache_folder
from soak import ledger
from soak.group import run_group
from soak.services import Services
from soak.story import GROUP

ROOT = Path(__file__).parent.parent


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="run stories for this long (default: %(default)s)")
    parser.add_argument("--seed", type=int, nargs="+", help="repeat the stories of these seeds")
    parser.add_argument("--stories", type=int, help="stop after this many stories")
    parser.add_argument(
        "--spark", metavar="VERSION", help="run on another PySpark, such as 4.1 (installed on first use)"
    )
    parser.add_argument("--keep", type=Path, help="work in this folder and keep it (default: a temporary folder)")
    parser.add_argument(
        "--ledger", action="store_true", help="record the stories in the ledger, and continue its seeds"
    )
    parser.add_argument("--report", action="store_true", help="only write the ledger's figures to docs/reliability.md")
    parser.add_argument("--tests", action="store_true", help="then run the slow tests (not with --seed)")
    parser.add_argument("--verbose", action="store_true", help="print every action as it is performed")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    if options.report:
        ledger.write_report()
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background, SIGINT would otherwise be ignored
        signal.signal(number, signal.default_int_handler)
    # As in the tests: no optimizing compiler and no early collections for JVMs that live for minutes.
    os.environ.setdefault(
        "JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
    )
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:NewSize=256m -XX:OldSize=256m")
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="headwater-soak-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    python = _python(options.spark)
    services = Services.in_folder(folder, python, environments.pyspark_version(Path(python)))
    try:
        failed, summary = _run_stories(options, services)
    finally:
        services.close()
    if not failed and options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    if options.tests and options.seed is None:
        tests = _run_slow_tests()
        summary += "; slow tests passed" if tests == 0 else "; slow tests FAILED"
        failed += tests
    print(summary)
    return 1 if failed else 0


def _python(spark: str | None) -> str:
    """Return the interpreter of the environment with a version of PySpark; this one by default."""
    if spark is None:
        return sys.executable
    return str(environments.environment(cache_folder() / "matrix", spark, print))


def _run_slow_tests() -> int:
    """Run the tests that take long, and the property tests on examples that they have not seen before."""
    environment = {**os.environ, "HEADWATER_RANDOM_EXAMPLES": "1"}
    command = [sys.executable, "-m", "pytest", "-m", "slow or (hypothesis and not services)"]
    # With generated code, which the tests of every run go without.
    conf = (
        "spark.sql.streaming.stateStore.maintenanceInterval=100ms",
        "spark.sql.codegen.factoryMode=FALLBACK",
        "spark.sql.codegen.wholeStage=true",
    )
    command += ["-o", "headwater_conf=" + "\n".join(conf)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _run_stories(options: argparse.Namespace, services: Services) -> tuple[int, str]:
    """Run groups of stories until the time is over; return the number of failures and a summary."""
    began = time.monotonic()
    lines: list[dict[str, Any]] = []
    for seeds in _groups(options, services.spark):
        for line in run_group(seeds, services, verbose=options.verbose or options.seed is not None):
            lines.append(line)
            if options.ledger:
                ledger.append(line)
        is_over = options.seed is None and time.monotonic() > began + options.minutes * 60
        if is_over or (options.stories is not None and len(lines) >= options.stories):
            break
    failed = sum(line["outcome"] != "good" for line in lines)
    tally: Counter[str] = Counter()
    for line in lines:
        tally.update(line["tally"])
    summary = (
        f"soak: {len(lines)} stories, {failed} failed; {tally['records']} records, {tally['batches']} batches, "
        f"{tally['kills']} kills, {tally['rewinds']} rewinds, {time.monotonic() - began:.0f} seconds"
    )
    return failed, summary


def _groups(options: argparse.Namespace, spark: str) -> Iterator[list[int]]:
    """Yield the seeds of each group: those of the options, or the failed ones of the ledger and then new groups."""
    if options.seed is not None:
        yield from ledger.by_group(options.seed)
    elif options.ledger:
        yield from ledger.next_groups(ledger.read(), spark)
    else:
        yield from (ledger.seeds_of(group) for group in itertools.count(int(time.time()) // GROUP))


if __name__ == "__main__":
    sys.exit(main())
