"""Workload D, the time machine: looks into checkpoints, each from a cold process, beside the same look with PySpark."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import measure
from bench.broker import HEADWATER
from bench.checkpoints import BATCHES_OF_STATE, logged, with_state
from bench.contender import Command, Contender, Failed, chosen, program, take_turns

BATCHES = 1_000
LIMIT_SECONDS = 300.0


def run(work: Path, *, keys: Sequence[int], rounds: int, only: list[str]) -> dict[str, Any]:
    """Every look in turns; the rows that both sides found are counted and must agree."""
    folder = work / "checkpoints"
    log = folder / f"log-{BATCHES}"
    if not (log / "commits" / str(BATCHES - 1)).exists():
        shutil.rmtree(log, ignore_errors=True)
        logged(log, BATCHES)
    looks = [*_log_looks(log), *_rewind_looks(log)]
    for count in keys:
        looks += _state_looks(with_state(folder, count), count, folder)
    looks.append(_scenario_look())

    def run_once(contender: Contender, number: int) -> dict[str, Any]:
        command = contender.command(None)  # type: ignore[arg-type]
        file = work / "logs" / f"d-{contender.slug}-{number}.log"
        measured = measure.run(command.words, log=file, seconds=LIMIT_SECONDS, env=command.env, cwd=folder)
        if measured.failed:
            raise Failed(f"ended with {measured.status}: {measured.complaint}")
        return {
            "wall_seconds": measured.wall_seconds,
            "cpu_seconds": measured.cpu_seconds,
            "peak_megabytes": measured.peak_megabytes,
            "rows": _rows(measured, file.with_suffix(".out"), contender.slug, folder),
            **{name: value for name, value in measured.said.items() if name == "batches_per_second"},
        }

    # Always in the same order: an undo is the undo of the rewind before it.
    rows = take_turns(chosen(looks, only), rounds, run_once, back_and_forth=False)
    return {"batches": BATCHES, "keys": list(keys), "contenders": rows}


def _headwater(slug: str, name: str, *words: str) -> Contender:
    return Contender(slug, name, "headwater", lambda _: Command([HEADWATER, *words], {"TZ": "UTC"}))


def _spark(slug: str, name: str, *words: str) -> Contender:
    return Contender(slug, name, "spark", lambda _: program("spark_looks.py", *words))


def _log_looks(log: Path) -> list[Contender]:
    name = f"log of {BATCHES:,} batches"
    return [
        _headwater("log", name, "log", str(log), "--json"),
        _spark("log-spark", name, "log", str(log)),
    ]


def _rewind_looks(log: Path) -> list[Contender]:
    """A rewind over all batches but a hundred, and its undo: the pair leaves the checkpoint as it was."""
    back = str(BATCHES // 10 - 1)
    return [
        _headwater(
            "rewind", f"rewind over {BATCHES - BATCHES // 10:,} batches", "rewind", str(log), "--to", back, "--yes"
        ),
        _headwater(
            "rewind-undo", f"undo of that (puts {BATCHES - BATCHES // 10:,} batches back)", "undo", str(log), "--yes"
        ),
    ]


def _state_looks(checkpoint: Path, keys: int, folder: Path) -> list[Contender]:
    place, ours, theirs = str(checkpoint), str(folder / "ours.parquet"), str(folder / "theirs.parquet")
    user = f"user-{keys // 2}"
    last_two = [str(BATCHES_OF_STATE - 2), str(BATCHES_OF_STATE - 1)]
    whole, one, change = (
        f"state of {keys:,} keys, as parquet",
        f"one key of {keys:,}",
        f"diff of two batches, {keys:,} keys",
    )
    return [
        _headwater(f"state-{keys}", whole, "state", place, "--format", "parquet", "--out", ours),
        _spark(f"state-{keys}-spark", whole, "state", place, theirs),
        _headwater(f"key-{keys}", one, "state", place, "--key", f"user={user}", "--json"),
        _spark(f"key-{keys}-spark", one, "key", place, user),
        _headwater(f"diff-{keys}", change, "diff", place, *last_two, "--json"),
        _spark(f"diff-{keys}-spark", change, "diff", place, *last_two),
    ]


def _scenario_look() -> Contender:
    command = Command([sys.executable, str(Path(__file__).with_name("scenario_speed.py"))])
    name = "three scenarios of 40 feeds each, Spark's start included"
    return Contender("scenario", name, "headwater", lambda _: command)


def _rows(measured: measure.Measured, output: Path, slug: str, folder: Path) -> int | None:
    """How many rows an answer had: a number that PySpark's side tells, lines for Headwater's."""
    if "rows" in measured.said:
        return int(measured.said["rows"])
    if slug.startswith("state-"):
        import pyarrow.parquet as pq

        return int(pq.ParquetFile(folder / "ours.parquet").metadata.num_rows)
    if slug.startswith(("log", "key-", "diff-")):
        with contextlib.suppress(ValueError):
            return sum(1 for line in output.read_text().splitlines() if isinstance(json.loads(line), dict))
    return None
