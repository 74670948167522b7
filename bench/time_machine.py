"""The time machine: commands on checkpoints, each in a cold process, next to the same read with PySpark."""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import measure
from bench.broker import HEADWATER
from bench.charts import HEADWATER_COLOR, OTHER_COLOR, Bar, draw_bars
from bench.checkpoints import STATE_BATCHES, ensure_generated_checkpoint, ensure_spark_checkpoint
from bench.contender import Command, Contender, ContenderFailed, program, run_rounds, select
from bench.large_state import BATCHES as LARGE_BATCHES
from bench.large_state import STORES, ensure_large_state, user_name
from bench.tables import best, describe_conditions, format_number, last_line, markdown_table, median, wrap

BATCHES = 1_000
LIMIT_SECONDS = 300.0
OWN_FIGURES = ("batches_per_second", "first_batch_seconds")


def run(work: Path, *, keys: Sequence[int], large: int, rounds: int, only: list[str]) -> dict[str, Any]:
    """Run every command and count the rows of both sides, which must agree. ``large`` states are on every store."""
    folder = work / "checkpoints"
    log = ensure_generated_checkpoint(folder, BATCHES)
    contenders = [*_log_contenders(log), *_rewind_contenders(log)]
    for count in keys:
        contenders += _state_contenders(ensure_spark_checkpoint(folder, count), count, folder)
    for store in STORES if large else ():
        contenders += _large_contenders(ensure_large_state(folder, large, store), large, store, folder)
    contenders += _whole_spark_contenders()

    def run_once(contender: Contender, number: int) -> dict[str, Any]:
        command = contender.command(None)  # type: ignore[arg-type]
        file = work / "logs" / f"time-machine-{contender.slug}-{number}.log"
        measured = measure.run(command.argv, log=file, seconds=LIMIT_SECONDS, env=command.env, cwd=folder)
        if measured.failed:
            raise ContenderFailed(f"{measured.outcome}: {measured.error}")
        return {
            "wall_seconds": measured.wall_seconds,
            "cpu_seconds": measured.cpu_seconds,
            "peak_megabytes": measured.peak_megabytes,
            "rows": _count_rows(measured, file.with_suffix(".out"), contender.slug, folder),
            **{name: value for name, value in measured.last_json.items() if name in OWN_FIGURES},
        }

    # The order is fixed because an undo needs the rewind before it.
    rows = run_rounds(select(contenders, only), rounds, run_once, alternate_order=False)
    return {"batches": BATCHES, "keys": list(keys), "large": large, "contenders": rows}


def _headwater(slug: str, name: str, *arguments: str) -> Contender:
    return Contender(slug, name, "headwater", lambda _: Command([HEADWATER, *arguments], {"TZ": "UTC"}))


def _spark(slug: str, name: str, *arguments: str) -> Contender:
    return Contender(slug, name, "spark", lambda _: program("checkpoint_reads.py", *arguments))


def _log_contenders(log: Path) -> list[Contender]:
    name = f"log of {BATCHES:,} batches"
    return [
        _headwater("log", name, "log", str(log), "--json"),
        _spark("log-spark", name, "log", str(log)),
    ]


def _rewind_contenders(log: Path) -> list[Contender]:
    """Rewind over all batches but the first tenth, then undo: the pair leaves the checkpoint as it was."""
    target = str(BATCHES // 10 - 1)
    return [
        _headwater(
            "rewind", f"rewind over {BATCHES - BATCHES // 10:,} batches", "rewind", str(log), "--to", target, "--yes"
        ),
        _headwater(
            "rewind-undo",
            f"undo of that rewind ({BATCHES - BATCHES // 10:,} batches restored)",
            "undo",
            str(log),
            "--yes",
        ),
    ]


def _state_contenders(checkpoint: Path, keys: int, folder: Path) -> list[Contender]:
    path, headwater, spark = str(checkpoint), str(folder / "headwater.parquet"), str(folder / "spark.parquet")
    user = f"user-{keys // 2}"
    last_two = [str(STATE_BATCHES - 2), str(STATE_BATCHES - 1)]
    state, one, change = (
        f"state of {keys:,} keys, as Parquet",
        f"one key of {keys:,}",
        f"diff of two batches, {keys:,} keys",
    )
    return [
        _headwater(f"state-{keys}", state, "state", path, "--format", "parquet", "--out", headwater),
        _spark(f"state-{keys}-spark", state, "state", path, spark),
        _headwater(f"key-{keys}", one, "state", path, "--key", f"user={user}", "--json"),
        _spark(f"key-{keys}-spark", one, "key", path, user),
        _headwater(f"diff-{keys}", change, "diff", path, *last_two, "--json"),
        _spark(f"diff-{keys}-spark", change, "diff", path, *last_two),
        *_edit_contenders(path, keys, user),
    ]


def _large_contenders(checkpoint: Path, keys: int, store: str, folder: Path) -> list[Contender]:
    """Read a state of which little is in memory at a time; next to PySpark only once, on the store that is the default."""
    path, user = str(checkpoint), user_name(keys // 2)
    state, one = f"{store}: state of {keys:,} keys, as Parquet", f"{store}: one key of {keys:,}"
    found = [
        _headwater(
            f"state-{store}", state, "state", path, "--format", "parquet", "--out", str(folder / "headwater.parquet")
        ),
        _headwater(f"key-{store}", f"{one}, with --key", "state", path, "--key", f"user={user}", "--json"),
        _headwater(
            f"key-where-{store}", f"{one}, with --where", "state", path, "--where", f"user = '{user}'", "--json"
        ),
        _headwater(
            f"where-{store}", f"{store}: --where over {keys:,} keys", "state", path, "--where", "count > 1002", "--json"
        ),
        _headwater(
            f"sql-{store}",
            f"{store}: --sql over {keys:,} keys",
            "state",
            path,
            "--sql",
            "select count % 10 as digit, count(*) as users, max(last) as last from state group by 1",
            "--json",
        ),
        _headwater(
            f"diff-{store}",
            f"{store}: diff of two batches, {keys:,} keys",
            "diff",
            path,
            str(LARGE_BATCHES - 2),
            str(LARGE_BATCHES - 1),
            "--json",
        ),
    ]
    if store == "changelog":
        found.insert(1, _spark(f"state-{store}-spark", state, "state", path, str(folder / "spark.parquet")))
        found.insert(3, _spark(f"key-{store}-spark", f"{one}, with --key", "key", path, user))
    return found


def _edit_contenders(path: str, keys: int, user: str) -> list[Contender]:
    """Change one key, then undo it: the pair leaves the checkpoint as it was."""
    edit = ("edit", path, "--key", f"user={user}", "--set", "count=7", "--yes", "--json")
    return [
        _headwater(f"edit-{keys}", f"edit of one key of {keys:,}", *edit),
        _headwater(f"edit-{keys}-undo", "undo of that edit", "undo", path, "--yes"),
    ]


def _whole_spark_contenders() -> list[Contender]:
    names = {
        "scenario_speed": "12 test scenarios of 40 feeds each, with Spark's start",
        "first_batch": "`headwater run` of a stateful job over files, stopped after its first batch",
    }
    return [
        Contender(slug, name, "headwater", partial(_command_of_module, f"bench.{slug}")) for slug, name in names.items()
    ]


def _command_of_module(module: str, _: object) -> Command:
    return Command([sys.executable, "-m", module], {"PYTHONPATH": str(Path(__file__).parents[1])})


def _count_rows(measured: measure.Measurement, output: Path, slug: str, folder: Path) -> int | None:
    """Return the number of rows of an answer: PySpark's side prints it, Headwater's output has one line for each."""
    if "rows" in measured.last_json:
        return int(measured.last_json["rows"])
    if slug.startswith("state-"):
        import pyarrow.parquet as pq

        return int(pq.ParquetFile(folder / "headwater.parquet").metadata.num_rows)
    if slug.startswith(("log", "key-", "diff-", "where-", "sql-")):
        with contextlib.suppress(ValueError):
            return sum(1 for line in output.read_text().splitlines() if isinstance(json.loads(line), dict))
    return None


def format_table(result: dict[str, Any]) -> str:
    head = ("command", "Headwater s: median", "best", "PySpark s: median", "best", "times as fast")
    head += ("Headwater peak MB", "PySpark peak MB", "same number of rows")
    rows = []
    for headwater, spark in _pairs(result):
        if not headwater["runs"]:
            rows.append((headwater["name"], "did not run", *[""] * 6, last_line(headwater["error"] or "")))
            continue
        own_seconds, spark_seconds = median(headwater, "wall_seconds"), median(spark, "wall_seconds") if spark else None
        rows.append(
            (
                headwater["name"],
                format_number(own_seconds, 2),
                format_number(best(headwater, "wall_seconds", lowest=True), 2),
                format_number(spark_seconds, 2) or "no equivalent",
                format_number(best(spark, "wall_seconds", lowest=True), 2) if spark else "",
                format_number(spark_seconds / own_seconds, 1) if spark_seconds and own_seconds else "",
                format_number(median(headwater, "peak_megabytes")),
                format_number(median(spark, "peak_megabytes")) if spark else "",
                _format_agreement(headwater, spark),
            )
        )
    title = (
        "Every command runs in a cold process and is timed from its start to its end. PySpark's times include the start of "
        "the JVM and of the session, which a long-lived session pays only once."
    )
    return "\n\n".join([wrap(title), markdown_table(head, rows), *_own_figures(result), describe_conditions(result)])


def _own_figures(result: dict[str, Any]) -> list[str]:
    """Return a line on the speed of the test harness, and one on the start of a job, which PySpark has no equivalent of."""
    rates, starts = (
        [run[name] for row in result["contenders"] for run in row["runs"] if name in run] for name in OWN_FIGURES
    )
    lines = []
    if rates:
        by_job = {name: [run[name] for run in rates] for name in rates[0]}
        parts = [f"{name} {max(found):.1f} ({statistics.median(found):.1f})" for name, found in by_job.items()]
        lines.append(
            f"Micro-batches a second through the scenario harness in the last three of twelve scenarios, best (median): "
            f"{', '.join(parts)}."
        )
    if starts:
        lines.append(
            f"From the start of `headwater run` to the commit of its first batch: {min(starts):.1f} s "
            f"({statistics.median(starts):.1f})."
        )
    return [wrap(line) for line in lines]


def _format_agreement(headwater: dict[str, Any], spark: dict[str, Any] | None) -> str:
    if spark is None or not spark["runs"]:
        return ""
    counts = {run["rows"] for row in (headwater, spark) for run in row["runs"]}
    return f"yes, {counts.pop():,}" if len(counts) == 1 else f"**no**: {sorted(map(str, counts))}"


def _pairs(result: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return each of Headwater's rows with PySpark's row for the same read, if there is one."""
    rows = {row["slug"]: row for row in result["contenders"]}
    return [(row, rows.get(f"{slug}-spark")) for slug, row in rows.items() if not slug.endswith("-spark")]


def summarize(result: dict[str, Any]) -> str:
    ratios = [
        spark_seconds / own_seconds
        for headwater, spark in _pairs(result)
        if spark
        and (own_seconds := median(headwater, "wall_seconds"))
        and (spark_seconds := median(spark, "wall_seconds"))
    ]
    if not ratios:
        return "time machine: no PySpark times to compare with"
    return f"time machine: {min(ratios):.0f} to {max(ratios):.0f} times as fast as PySpark, JVM start included"


def draw_plots(result: dict[str, Any]) -> dict[str, str]:
    rows = []
    for headwater, spark in _pairs(result):
        for row, engine, color in ((headwater, "Headwater", HEADWATER_COLOR), (spark, "PySpark", OTHER_COLOR)):
            if row and (value := median(row, "wall_seconds")):
                rows.append(
                    Bar(f"{row['name']}: {engine}" if row is headwater else engine, value, f"{value:.2f} s", color)
                )
    return {
        "time_machine": draw_bars("The time machine, from a cold start", rows, "seconds, median; shorter is better")
    }
