"""Workload A as a table, a plot and the ratios that matter."""

from __future__ import annotations

from typing import Any

from bench.charts import OURS, THEIRS, WRONG, Bar, bars
from bench.words import best, first_line, markdown, measured_on, median, number, verdict

AIMS = (
    ("headwater", "nothing-json", 0.9),
    ("headwater", "tutorial", 1.5),
    ("headwater-200k", "tutorial-200k", 3.0),
)


def table(result: dict[str, Any]) -> str:
    ranked = sorted(result["contenders"], key=lambda row: -(median(row, "records_per_second") or 0))
    head = ("contender", "records/s: median", "best", "with start-up", "start-up s", "CPU s per million")
    head += ("peak MB", "records", "late ones counted", "correct", "state after a crash")
    rows = []
    for row in ranked:
        if not row["runs"]:
            rows.append((row["name"], "did not run", *[""] * 7, first_line(row["error"] or ""), row["state"]))
            continue
        records = row["runs"][0]["records"]
        rows.append(
            (
                row["name"],
                number(median(row, "records_per_second")),
                number(best(row, "records_per_second")),
                number(median(row, "with_start")),
                number(median(row, "start_seconds"), 1),
                number((median(row, "cpu_seconds") or 0) / records * 1e6, 1),
                number(median(row, "peak_megabytes")),
                number(records),
                number(median(row, "late_counted")),
                verdict(row),
                row["state"],
            )
        )
    title = f"**A. Throughput**: {result['records']:,} visits in Kafka, statistics per browser and window to Kafka."
    return "\n\n".join([title, markdown(head, rows), _ratio_words(result), measured_on(result)])


def ratios(result: dict[str, Any]) -> dict[str, float]:
    """How many times as fast Headwater is, by medians."""
    speed = {row["slug"]: median(row, "records_per_second") for row in result["contenders"]}
    found = {}
    for ours, theirs, _ in AIMS:
        if speed.get(ours) and speed.get(theirs):
            found[f"{ours} / {theirs}"] = (speed[ours] or 0) / (speed[theirs] or 1)
    return found


def _ratio_words(result: dict[str, Any]) -> str:
    found = ratios(result)
    aims = {f"{ours} / {theirs}": aim for ours, theirs, aim in AIMS}
    return "; ".join(f"{name}: {value:.2f} (aim {aims[name]})" for name, value in found.items()) or "No ratios."


def summary(result: dict[str, Any]) -> str:
    speed = {row["slug"]: median(row, "records_per_second") for row in result["contenders"]}
    told = [f"{slug} {value / 1000:.0f}k records/s" for slug, value in speed.items() if value and slug == "headwater"]
    told += [f"{value:.2f} times {name.partition(' / ')[2]}" for name, value in ratios(result).items()]
    return "A: " + ", ".join(told or ["measured"])


def plots(result: dict[str, Any]) -> dict[str, str]:
    ranked = sorted(result["contenders"], key=lambda row: -(median(row, "records_per_second") or 0))
    rows = []
    for row in ranked:
        value = median(row, "records_per_second")
        if value:
            right = all(run.get("correct", True) for run in row["runs"])
            colour = WRONG if not right else OURS if row["slug"].startswith("headwater") else THEIRS
            rows.append(Bar(row["name"], value, f"{value / 1000:.0f}k", colour))
    note = "records per second after start-up, median; red: answers that were not right in every run"
    return {"a": bars(f"Throughput, {result['records']:,} visits", rows, note)}
