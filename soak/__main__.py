"""``python -m soak``: tell stories for some minutes, or one again by its seed."""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from soak import checking, ledger
from soak.acting import Actor
from soak.stage import Services, Stage
from soak.story import as_dict, story

ROOT = Path(__file__).parent.parent


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    words.add_argument("--minutes", type=float, default=3.0, help="how long to go on telling stories")
    words.add_argument("--seed", type=int, help="tell this one story again")
    words.add_argument("--stories", type=int, help="stop after so many")
    words.add_argument("--keep", type=Path, help="a folder to work in; default: one in the temporary folder")
    words.add_argument("--ledger", action="store_true", help="write the stories down, and go on where the ledger ends")
    words.add_argument("--report", action="store_true", help="only write the ledger's figures into docs/reliability.md")
    words.add_argument("--tests", action="store_true", help="then run the tests that take minutes (not with --seed)")
    words.add_argument("--verbose", action="store_true", help="print every action as it is carried out")
    chosen = words.parse_args()
    if chosen.report:
        ledger.write_report()
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):  # both end it cleanly, in the background too
        signal.signal(number, signal.default_int_handler)
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    folder = (chosen.keep or Path(tempfile.mkdtemp(prefix="headwater-soak-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    services = Services.in_folder(folder)
    try:
        failed, summary = _tell_stories(chosen, services)
    finally:
        services.close()
    if not failed and chosen.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    if chosen.tests and chosen.seed is None:
        tests = subprocess.run([sys.executable, "-m", "pytest", "-m", "slow"], cwd=ROOT, check=False).returncode
        summary += "; slow tests passed" if tests == 0 else "; slow tests FAILED"
        failed += tests
    print(summary)
    return 1 if failed else 0


def _tell_stories(chosen: argparse.Namespace, services: Services) -> tuple[int, str]:
    deadline = time.monotonic() + chosen.minutes * 60
    seeds = iter([chosen.seed]) if chosen.seed is not None else _seeds(chosen.ledger)
    told, failed = 0, 0
    tally: dict[str, int] = {}
    began = time.monotonic()
    for seed in seeds:
        line: dict[str, Any] = _tell(seed, services, verbose=chosen.verbose or chosen.seed is not None)
        told += 1
        failed += int(line["outcome"] != "good")
        for name, count in line["tally"].items():
            tally[name] = tally.get(name, 0) + count
        if chosen.ledger:
            ledger.add(line)
        if told == chosen.stories or time.monotonic() > deadline:
            break
    summary = (
        f"soak: {told} stories, {failed} failed; {tally.get('records', 0)} records, {tally.get('batches', 0)} batches, "
        f"{tally.get('kills', 0)} kills, {tally.get('rewinds', 0)} rewinds, {time.monotonic() - began:.0f} seconds"
    )
    return failed, summary


def _seeds(from_ledger: bool) -> Iterator[int]:
    return ledger.seeds(ledger.read()) if from_ledger else itertools.count(int(time.time()))


def _tell(seed: int, services: Services, *, verbose: bool) -> dict[str, Any]:
    tale = story(seed)
    folder = services.folder / f"story-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    lines = [f"story {seed}: {tale.cell.name}, {tale.retained_batches} batches retained"]
    outcome, actor = "good", None
    if verbose:
        print(lines[0], flush=True)
    try:
        actor = Actor(Stage(tale, folder, services))
        for number, action in enumerate(tale.actions, 1):
            lines.append(f"{number:>3}. {_words(action)}")
            if verbose:
                print(lines[-1], flush=True)
            started = time.monotonic()
            lines[-1] += f"  →  {actor.act(action)} ({time.monotonic() - started:.1f} s)"
            if verbose:
                print(f"       {lines[-1].rpartition('→')[2].strip()}", flush=True)
        checking.check_no_secret(actor.stage)
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"[:2000]
        print("\n".join(lines), file=sys.stderr)
        traceback.print_exc()
        print(f"kept: {folder}\nto tell it again: python -m soak --seed {seed}", file=sys.stderr, flush=True)
        services.mend()
    else:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.monotonic() - began, 1)
    print(f"{lines[0]}: {outcome.splitlines()[0]}, {seconds} s", flush=True)
    return {
        "seed": seed,
        "commit": ledger.commit(),
        "cell": tale.cell.name,
        "actions": len(tale.actions),
        "tally": dict(actor.tally) if actor else {},
        "refused": dict(actor.refused) if actor else {},
        "seconds": seconds,
        "outcome": outcome.replace(str(folder), "STORY"),
    }


def _words(action: Any) -> str:
    told = as_dict(action)
    name = told.pop("do")
    burst = told.pop("burst", None)
    return f"{name} " + " ".join(f"{key}={value}" for key, value in {**(burst or {}), **told}.items())


if __name__ == "__main__":
    sys.exit(main())
