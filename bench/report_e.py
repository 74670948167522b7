"""Workload E as a table of slopes and a plot of each kind of growth."""

from __future__ import annotations

import statistics
from typing import Any

from bench.charts import growth
from bench.words import first_line, markdown, measured_on

PLOTS = {
    "e-input": ("Input grows", "records", ("input-",)),
    "e-state": ("State grows", "keys", ("batch-", "state", "key")),
}


def table(result: dict[str, Any]) -> str:
    rows = []
    for series in result["series"]:
        points = _points(series)
        seconds = " · ".join(f"{size:,.0f}: {value:,.2f}" for size, value in points)
        slope = "" if series["slope"] is None else f"{series['slope']:.2f}"
        rows.append((series["name"], series["unit"], seconds or first_line(series["error"] or ""), slope))
    head = ("what", "grows with", "seconds at each size (median)", "slope")
    title = (
        "**E. Growth**: slopes on logarithmic axes. 0: the cost does not grow; 1: it grows as its input does; below 1: a fixed "
        "part is shared out; above 1: it grows faster than its input."
    )
    return "\n\n".join([title, markdown(head, rows), measured_on(result)])


def summary(result: dict[str, Any]) -> str:
    told = [f"{series['slug']} {series['slope']}" for series in result["series"] if series["slope"] is not None]
    return "E: slopes " + ", ".join(told)


def plots(result: dict[str, Any]) -> dict[str, str]:
    pictures = {}
    for name, (title, unit, prefixes) in PLOTS.items():
        lines = {
            series["name"]: _points(series)
            for series in result["series"]
            if series["slug"].startswith(prefixes) and _points(series)
        }
        if lines:
            pictures[name] = growth(title, lines, unit, "seconds")
    return pictures


def _points(series: dict[str, Any]) -> list[tuple[float, float]]:
    return [(point["size"], statistics.median(point["seconds"])) for point in series["points"] if point["seconds"]]
