"""Contenders, and the rounds in which they run side by side."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import measure
from bench.environments import PeerUnavailable

PROGRAMS = Path(__file__).parent / "contenders"
SPARK_ENV = {"TZ": "UTC", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


@dataclass(frozen=True)
class RunContext:
    """Input, output and working folder of one run; the folder is empty at the start and removed at the end."""

    folder: Path
    bootstrap: str
    topic: str
    out: str
    records: int

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"


@dataclass(frozen=True)
class Command:
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """One engine or configuration. ``slug`` selects it with ``--only``; ``state`` describes what survives a crash."""

    slug: str
    name: str
    state: str
    command: Callable[[RunContext], Command]
    max_records: int | None = None


class ContenderFailed(Exception):
    """A contender exited with an error, timed out or gave a wrong answer."""


def program(file: str, *options: str, python: str = sys.executable) -> Command:
    """Return the command that runs a program of ``contenders/``."""
    return Command([python, str(PROGRAMS / file), *options], SPARK_ENV)


def select(contenders: Sequence[Contender], only: Sequence[str]) -> list[Contender]:
    """Return the contenders that ``--only`` names by slug or by slug prefix; all of them when it names none."""
    return [one for one in contenders if is_selected(one.slug, only)]


def is_selected(slug: str, only: Sequence[str]) -> bool:
    return not only or any(slug == name or slug.startswith(f"{name}-") for name in only)


def run_rounds(
    contenders: Sequence[Contender],
    rounds: int,
    run_once: Callable[[Contender, int], dict[str, Any]],
    *,
    alternate_order: bool = True,
) -> list[dict[str, Any]]:
    """Run every contender once in each round and return their results.

    Every second round runs in reverse order, so that a busy minute on the machine affects all contenders alike. A contender
    that is unavailable or fails is reported with its error and skipped in later rounds.
    """
    rows = {
        one.slug: {"slug": one.slug, "name": one.name, "state": one.state, "runs": [], "error": None}
        for one in contenders
    }
    for number in range(rounds):
        for one in reversed(contenders) if alternate_order and number % 2 else contenders:
            row = rows[one.slug]
            if row["error"]:
                continue
            load = os.getloadavg()[0]
            try:
                found = run_once(one, number)
            except PeerUnavailable as reason:
                row["error"] = f"not available on this machine: {reason}"
            except ContenderFailed as failure:
                row["error"] = str(failure)
            else:
                row["runs"].append({**found, "load_before": round(load, 2)})
            _print_progress(number, one, row)
    return list(rows.values())


def run_to_end(contender: Contender, context: RunContext, *, seconds: float) -> measure.Measurement:
    """Run a contender once in an empty folder and measure it."""
    shutil.rmtree(context.folder, ignore_errors=True)
    context.folder.mkdir(parents=True)
    command = contender.command(context)
    log = context.folder.parent / "logs" / f"{context.out}.log"
    measured = measure.run(command.argv, log=log, seconds=seconds, env=command.env, cwd=context.folder)
    if measured.failed:
        raise ContenderFailed(f"{measured.outcome} after {measured.wall_seconds:.0f} s: {measured.error}")
    return measured


def _print_progress(number: int, contender: Contender, row: dict[str, Any]) -> None:
    if row["error"]:
        outcome = f"failed: {row['error'][-400:]}"
    else:
        outcome = "  ".join(f"{name} {value}" for name, value in row["runs"][-1].items())
    print(f"{time.strftime('%H:%M:%S')} round {number + 1}  {contender.slug}: {outcome}", flush=True)
