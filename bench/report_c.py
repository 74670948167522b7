"""Workload C as a table and a plot."""

from __future__ import annotations

from typing import Any

from bench.charts import OURS, THEIRS, Bar, bars
from bench.words import best, first_line, markdown, measured_on, median, number, verdict


def table(result: dict[str, Any]) -> str:
    head = ("way", "records/s: median", "best", "with start-up", "CPU s per million", "peak MB", "correct")
    rows = []
    for row in _ranked(result):
        if not row["runs"]:
            rows.append((row["name"], "did not run", *[""] * 4, first_line(row["error"] or "")))
            continue
        rows.append(
            (
                row["name"],
                number(median(row, "records_per_second")),
                number(best(row, "records_per_second")),
                number(median(row, "with_start")),
                number((median(row, "cpu_seconds") or 0) / result["purchases"] * 1e6, 1),
                number(median(row, "peak_megabytes")),
                verdict(row),
            )
        )
    title = (
        f"**C. Custom state**: {result['purchases']:,} purchases of {result['users']:,} users in {result['batches']} batches, "
        "from Kafka, each user's running total to Kafka."
    )
    return "\n\n".join([title, markdown(head, rows), measured_on(result)])


def summary(result: dict[str, Any]) -> str:
    speed = {row["slug"]: median(row, "records_per_second") for row in result["contenders"]}
    theirs = speed.get("documented")
    ways = {"headwater-built-in": "native aggregation", "headwater": "custom state"}
    parts = [
        f"{words} {ours / theirs:.2f} times" for slug, words in ways.items() if theirs and (ours := speed.get(slug))
    ]
    return f"C: {', '.join(parts)} transformWithState as documented" if parts else "C: measured"


def plots(result: dict[str, Any]) -> dict[str, str]:
    rows = [
        Bar(row["name"], value, f"{value / 1000:.0f}k", OURS if row["slug"].startswith("headwater") else THEIRS)
        for row in _ranked(result)
        if (value := median(row, "records_per_second"))
    ]
    return {"c": bars("Running totals: ways to keep state", rows, "records per second after start-up, median")}


def _ranked(result: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(result["contenders"], key=lambda row: -(median(row, "records_per_second") or 0))
