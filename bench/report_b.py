"""Workload B as a table and a plot."""

from __future__ import annotations

from typing import Any

from bench.charts import OURS, THEIRS, Bar, bars
from bench.words import best, first_line, markdown, measured_on, median, number


def table(result: dict[str, Any]) -> str:
    head = ("contender", "p50 ms: median", "best", "p99 ms: median", "best", "worst ms", "CPU cores used", "peak MB")
    head += ("never came out",)
    rows = []
    for row in _ranked(result):
        if not row["runs"]:
            rows.append((row["name"], "did not run", *[""] * 6, first_line(row["error"] or "")))
            continue
        share = [run["cpu_seconds"] / run["wall_seconds"] for run in row["runs"]]
        rows.append(
            (
                row["name"],
                number(median(row, "p50_ms")),
                number(best(row, "p50_ms", least=True)),
                number(median(row, "p99_ms")),
                number(best(row, "p99_ms", least=True)),
                number(max(run["max_ms"] for run in row["runs"])),
                number(sorted(share)[len(share) // 2], 2),
                number(median(row, "peak_megabytes")),
                number(median(row, "unanswered")),
            )
        )
    title = (
        f"**B. Latency**: {result['rate']:,} visits a second for {result['seconds']:.0f} s, after a warm-up of "
        f"{result['warm_seconds']:.0f} s; from just before the record is sent to its arrival at an independent consumer."
    )
    return "\n\n".join([title, markdown(head, rows), measured_on(result)])


def summary(result: dict[str, Any]) -> str:
    row = next((row for row in result["contenders"] if row["slug"] == "headwater" and row["runs"]), None)
    if row is None:
        return "B: measured"
    return f"B: stateful p50 {median(row, 'p50_ms'):.0f} ms, p99 {median(row, 'p99_ms'):.0f} ms"


def plots(result: dict[str, Any]) -> dict[str, str]:
    rows = [
        Bar(
            row["name"],
            median(row, "p50_ms") or 0,
            f"{median(row, 'p50_ms'):,.0f} / {median(row, 'p99_ms'):,.0f} ms",
            OURS if row["slug"].startswith("headwater") else THEIRS,
            median(row, "p99_ms"),
        )
        for row in _ranked(result)
        if row["runs"] and row["slug"] != "tutorial"
    ]
    note = "bar: p50, whisker: p99, milliseconds; tutorial PySpark is in the table, it would dwarf the others"
    return {"b": bars(f"Latency at {result['rate']:,} records a second", rows, note)}


def _ranked(result: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(result["contenders"], key=lambda row: median(row, "p50_ms") or float("inf"))
