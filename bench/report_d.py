"""Workload D as a table: Headwater and PySpark on one line."""

from __future__ import annotations

from typing import Any

from bench.charts import OURS, THEIRS, Bar, bars
from bench.words import best, first_line, markdown, measured_on, median, number


def table(result: dict[str, Any]) -> str:
    head = ("question", "Headwater s: median", "best", "PySpark s: median", "best", "times as fast", "MB", "PySpark MB")
    head += ("same number of rows",)
    rows = []
    for ours, theirs in _pairs(result):
        if not ours["runs"]:
            rows.append((ours["name"], "did not run", *[""] * 6, first_line(ours["error"] or "")))
            continue
        mine, other = median(ours, "wall_seconds"), median(theirs, "wall_seconds") if theirs else None
        rows.append(
            (
                ours["name"],
                number(mine, 2),
                number(best(ours, "wall_seconds", least=True), 2),
                number(other, 2) or "no such means",
                number(best(theirs, "wall_seconds", least=True), 2) if theirs else "",
                number(other / mine, 1) if other and mine else "",
                number(median(ours, "peak_megabytes")),
                number(median(theirs, "peak_megabytes")) if theirs else "",
                _agreement(ours, theirs),
            )
        )
    title = "**D. The time machine**: each answer from a cold process, from its start to its end."
    return "\n\n".join([title, markdown(head, rows), *_scenario_words(result), measured_on(result)])


def _scenario_words(result: dict[str, Any]) -> list[str]:
    """How fast the test harness drives a job, which has no counterpart."""
    runs = [
        run["batches_per_second"] for row in result["contenders"] for run in row["runs"] if "batches_per_second" in run
    ]
    if not runs:
        return []
    told = ", ".join(f"{name} {max(run[name] for run in runs):.1f}" for name in runs[0])
    return [f"Micro-batches a second through the scenario harness, best of the rounds: {told}."]


def _agreement(ours: dict[str, Any], theirs: dict[str, Any] | None) -> str:
    if theirs is None or not theirs["runs"]:
        return ""
    counts = {run["rows"] for row in (ours, theirs) for run in row["runs"]}
    return f"yes, {counts.pop():,}" if len(counts) == 1 else f"**no**: {sorted(map(str, counts))}"


def _pairs(result: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    rows = {row["slug"]: row for row in result["contenders"]}
    return [(row, rows.get(f"{slug}-spark")) for slug, row in rows.items() if not slug.endswith("-spark")]


def summary(result: dict[str, Any]) -> str:
    told = [
        f"{ours['slug']} {theirs_seconds / mine:.0f} times PySpark"
        for ours, theirs in _pairs(result)
        if theirs and (mine := median(ours, "wall_seconds")) and (theirs_seconds := median(theirs, "wall_seconds"))
    ]
    return "D: " + (", ".join(told) or "measured")


def plots(result: dict[str, Any]) -> dict[str, str]:
    rows = []
    for ours, theirs in _pairs(result):
        for row, who, colour in ((ours, "Headwater", OURS), (theirs, "PySpark", THEIRS)):
            if row and (value := median(row, "wall_seconds")):
                rows.append(Bar(f"{row['name']}: {who}" if row is ours else who, value, f"{value:.2f} s", colour))
    return {"d": bars("The time machine, from a cold start", rows, "seconds, median; shorter is better")}
