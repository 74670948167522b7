"""What a contender is, and how contenders take turns."""

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
from bench.environments import Unavailable

PROGRAMS = Path(__file__).parent / "contenders"
UTC = {"TZ": "UTC", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


@dataclass(frozen=True)
class Arena:
    """Where a run takes place: its folder is empty at the start and gone afterwards."""

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
    words: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """``slug`` is how it is chosen on the command line; ``state`` says in a few words what a crash leaves."""

    slug: str
    name: str
    state: str
    command: Callable[[Arena], Command]
    most_records: int | None = None


def program(file: str, *options: str, python: str = sys.executable) -> Command:
    """A program of ``contenders/``."""
    return Command([python, str(PROGRAMS / file), *options], UTC)


def chosen(contenders: Sequence[Contender], only: Sequence[str]) -> list[Contender]:
    """Those whose slug is named, or begins with a name and a dash; all when nothing is named."""
    if not only:
        return list(contenders)
    return [one for one in contenders if any(one.slug == name or one.slug.startswith(f"{name}-") for name in only)]


def take_turns(
    contenders: Sequence[Contender],
    rounds: int,
    run_once: Callable[[Contender, int], dict[str, Any]],
    *,
    back_and_forth: bool = True,
) -> list[dict[str, Any]]:
    """Every contender once in each round, every second round in the opposite order, so that a slow minute hits all alike.

    One that cannot be had or that fails is reported with its own words, and is not tried again.
    """
    rows = {
        one.slug: {"slug": one.slug, "name": one.name, "state": one.state, "runs": [], "error": None}
        for one in contenders
    }
    for number in range(rounds):
        for one in reversed(contenders) if back_and_forth and number % 2 else contenders:
            row = rows[one.slug]
            if row["error"]:
                continue
            load = os.getloadavg()[0]
            try:
                found = run_once(one, number)
            except Unavailable as reason:
                row["error"] = f"cannot be had here: {reason}"
            except Failed as failure:
                row["error"] = str(failure)
            else:
                row["runs"].append({**found, "load_before": round(load, 2)})
                row["error"] = found.pop("error", None)
            _tell(number, one, row)
    return list(rows.values())


class Failed(Exception):
    """A contender that did not come to its end."""


def run_to_end(contender: Contender, arena: Arena, *, seconds: float) -> measure.Measured:
    """One measured run in an empty folder."""
    shutil.rmtree(arena.folder, ignore_errors=True)
    arena.folder.mkdir(parents=True)
    command = contender.command(arena)
    log = arena.folder.parent / "logs" / f"{arena.out}.log"
    measured = measure.run(command.words, log=log, seconds=seconds, env=command.env, cwd=arena.folder)
    if measured.failed:
        raise Failed(f"ended with {measured.status} after {measured.wall_seconds:.0f} s: {measured.complaint}")
    return measured


def _tell(number: int, contender: Contender, row: dict[str, Any]) -> None:
    if row["error"]:
        words = f"failed: {row['error'][-400:]}"
    else:
        words = "  ".join(f"{name} {value}" for name, value in row["runs"][-1].items())
    print(f"{time.strftime('%H:%M:%S')} round {number + 1}  {contender.slug}: {words}", flush=True)
