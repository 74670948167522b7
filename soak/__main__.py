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
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from soak import checks, ledger
from soak.environment import StoryEnvironment
from soak.runner import StoryRunner
from soak.services import Services
from soak.story import describe_action, generate_story

ROOT = Path(__file__).parent.parent


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="run stories for this long (default: %(default)s)")
    parser.add_argument("--seed", type=int, nargs="+", help="repeat the stories of these seeds")
    parser.add_argument("--stories", type=int, help="stop after this many stories")
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
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="headwater-soak-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    services = Services.in_folder(folder)
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
    """Run stories until the time is over; return the number of failures and a summary."""
    began = time.monotonic()
    if options.seed is not None:
        seeds = iter(options.seed)
    else:
        seeds = ledger.next_seeds(ledger.read()) if options.ledger else itertools.count(int(time.time()))
    stories, failed = 0, 0
    tally: Counter[str] = Counter()
    for seed in seeds:
        line = _run_story(seed, services, verbose=options.verbose or options.seed is not None)
        stories += 1
        failed += int(line["outcome"] != "good")
        tally.update(line["tally"])
        if options.ledger:
            ledger.append(line)
        is_over = options.seed is None and time.monotonic() > began + options.minutes * 60
        if stories == options.stories or is_over:
            break
    summary = (
        f"soak: {stories} stories, {failed} failed; {tally['records']} records, {tally['batches']} batches, "
        f"{tally['kills']} kills, {tally['rewinds']} rewinds, {time.monotonic() - began:.0f} seconds"
    )
    return failed, summary


def _run_story(seed: int, services: Services, *, verbose: bool) -> dict[str, Any]:
    """Run one story and return its line for the ledger; a failed story is printed and its folder is kept."""
    story = generate_story(seed)
    folder = services.folder / f"story-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    lines = [f"story {seed}: {story.cell.name}, {story.retained_batches} batches retained"]
    outcome, runner = "good", None
    if verbose:
        print(lines[0], flush=True)
    try:
        runner = StoryRunner(StoryEnvironment(story, folder, services))
        for number, action in enumerate(story.actions, 1):
            lines.append(f"{number:>3}. {describe_action(action)}")
            if verbose:
                print(lines[-1], flush=True)
            started = time.monotonic()
            lines[-1] += f"  →  {runner.perform(action)} ({time.monotonic() - started:.1f} s)"
            if verbose:
                print(f"       {lines[-1].rpartition('→')[2].strip()}", flush=True)
        lines.append(f"     at the end: {runner.inspect_all()}")
        if verbose:
            print(lines[-1], flush=True)
        checks.check_no_secret(runner.env)
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"[:2000]
        print("\n".join(lines), file=sys.stderr)
        traceback.print_exc()
        print(f"kept: {folder}\nto repeat: python -m soak --seed {seed}", file=sys.stderr, flush=True)
        services.restore()
    else:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.monotonic() - began, 1)
    print(f"{lines[0]}: {outcome.splitlines()[0]}, {seconds} s", flush=True)
    return {
        "seed": seed,
        "commit": ledger.commit(),
        "cell": story.cell.name,
        "actions": len(story.actions),
        "tally": dict(runner.tally) if runner else {},
        "refused": dict(runner.refused) if runner else {},
        "seconds": seconds,
        "outcome": outcome.replace(str(folder), "STORY"),
    }


if __name__ == "__main__":
    sys.exit(main())
