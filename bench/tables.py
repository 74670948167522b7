"""Results of several rounds as Markdown tables."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

TEXT_COLUMNS = {"correct", "state after a crash", "grows with", "same number of rows", "seconds at each size (median)"}


def median(row: dict[str, Any], name: str) -> float | None:
    found = _values(row, name)
    return statistics.median(found) if found else None


def best(row: dict[str, Any], name: str, *, lowest: bool = False) -> float | None:
    found = _values(row, name)
    return (min(found) if lowest else max(found)) if found else None


def _values(row: dict[str, Any], name: str) -> list[float]:
    return [run[name] for run in row["runs"] if run.get(name) is not None]


def is_correct(row: dict[str, Any]) -> bool:
    """Return whether every run gave a correct answer; runs without an answer to check count as correct."""
    return all(run.get("correct", True) for run in row["runs"])


def format_number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def format_verdict(row: dict[str, Any]) -> str:
    """Return "yes" if every run was correct, else the number of wrong runs and the worst errors."""
    checked = [run for run in row["runs"] if "correct" in run]
    if not checked:
        return ""
    if is_correct(row):
        return "yes"
    wrong = [run for run in checked if not run["correct"]]
    errors = {
        "lost": max(run.get("lost", 0) for run in wrong),
        "counted twice": max(run.get("counted_twice", 0) for run in wrong),
        "wrong times": max(run.get("wrong_last_times", 0) for run in wrong),
        "wrong users": max(run.get("wrong_users", 0) for run in wrong),
    }
    details = ", ".join(f"{count:,} {name}" for name, count in errors.items() if count)
    return f"**no** in {len(wrong)} of {len(checked)} runs: {details or 'differs from the exact answer of its batches'}"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with numbers aligned right and text aligned left."""
    sides = ["---" if index == 0 or name in TEXT_COLUMNS else "---:" for index, name in enumerate(head)]
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(sides)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def wrap(prose: str) -> str:
    """Wrap Markdown prose at 100 columns."""
    return textwrap.fill(prose, 100, break_long_words=False, break_on_hyphens=False)


def describe_conditions(result: dict[str, Any]) -> str:
    """Return when and on what machine a workload ran, how many rounds, and the load before and after."""
    machine, rounds = result["machine"], _rounds(result)
    return wrap(
        f"{result['date'][:16].replace('T', ' ')} UTC, {rounds} round{'s' * (rounds != 1)}, {machine['cores']} cores "
        f"({machine['processor']}), {machine['memory_gigabytes']} GB, Java {machine['java']}, Python {machine['python']}, "
        f"PySpark {machine['pyspark']}; load {result['load_before'][0]} before and {result['load_after'][0]} after."
    )


def _rounds(result: dict[str, Any]) -> int:
    runs = [row["runs"] for row in result.get("contenders", ())]
    runs += [point["seconds"] for series in result.get("series", ()) for point in series["points"]]
    return max(map(len, runs), default=int(result.get("rounds", 0)))


def last_line(error: str) -> str:
    """Return the last line of an error, short enough for a table cell."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return (lines[-1] if lines else "no output")[:160].replace("|", "/")
