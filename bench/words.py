"""Numbers of several runs as words for a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

WORDS = {"correct", "state after a crash", "grows with", "same number of rows", "seconds at each size (median)"}


def values(row: dict[str, Any], name: str) -> list[float]:
    return [run[name] for run in row["runs"] if run.get(name) is not None]


def median(row: dict[str, Any], name: str) -> float | None:
    found = values(row, name)
    return statistics.median(found) if found else None


def best(row: dict[str, Any], name: str, *, least: bool = False) -> float | None:
    found = values(row, name)
    return (min(found) if least else max(found)) if found else None


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def verdict(row: dict[str, Any]) -> str:
    """Right in every run, or how many records went wrong at the worst."""
    judged = [run for run in row["runs"] if "correct" in run]
    if not judged:
        return ""
    if all(run["correct"] for run in judged):
        return "yes"
    wrong = [run for run in judged if not run["correct"]]
    faults = {
        "lost": max(run.get("lost", 0) for run in wrong),
        "counted twice": max(run.get("counted_twice", 0) for run in wrong),
        "wrong times": max(run.get("wrong_last_times", 0) for run in wrong),
        "wrong users": max(run.get("wrong_users", 0) for run in wrong),
    }
    told = ", ".join(f"{count:,} {name}" for name, count in faults.items() if count) or "not what its batches must give"
    return f"**no** in {len(wrong)} of {len(judged)} runs: {told}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: numbers to the right, words to the left."""
    sides = ["---" if number == 0 or name in WORDS else "---:" for number, name in enumerate(head)]
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(sides)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def measured_on(result: dict[str, Any]) -> str:
    """One line on when and where."""
    machine = result["machine"]
    return (
        f"{result['date'][:16].replace('T', ' ')} UTC, {machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_gigabytes']} GB, Java {machine['java']}, Python {machine['python']}, "
        f"PySpark {machine['pyspark']}; load {result['load_before'][0]} before and {result['load_after'][0]} after."
    )


def first_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return (lines[-1] if lines else "it said nothing")[:160].replace("|", "/")
