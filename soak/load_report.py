"""Figures of the runs of ``soak.load``: what each of them must show, and the table of all."""

from __future__ import annotations

from typing import Any

from soak.sampling import Sample

MAX_LAG = 4.0
RANGED = ("driver_megabytes", "page_megabytes", "state_rows", "checkpoint_files", "checkpoint_megabytes")


def judge(samples: list[Sample], heaps: list[float | None], *, lag: float | None, lost: int) -> dict[str, bool]:
    """Compare the last third of the run with the second, in which nothing may grow any more."""
    third = len(samples) // 3
    middle, end = samples[third : 2 * third], samples[2 * third :]

    def is_flat(name: str, slack: float) -> bool:
        return bool(max(getattr(one, name) for one in end) <= slack * max(getattr(one, name) for one in middle))

    known = [heap for heap in heaps if heap is not None]
    return {
        "nothing lost": lost == 0,
        "kept up": lag is not None and lag <= MAX_LAG,
        "driver's memory flat": is_flat("driver_megabytes", 1.05),
        "live heap flat": len(known) < 2 or known[-1] <= 1.1 * known[0] + 10,
        "state bounded": is_flat("state_rows", 1.1),
        "checkpoint bounded": is_flat("checkpoint_files", 1.1),
        "page up to date": all(one.batch - one.batch_on_page <= 30 for one in samples[third:]),
    }


def ranges(samples: list[Sample]) -> dict[str, list[float]]:
    """Return the least and the largest value of each figure after the first third of a run."""
    later = samples[len(samples) // 3 :]
    values = {name: [getattr(one, name) for one in later] for name in RANGED}
    return {name: [min(found), max(found)] for name, found in values.items()}


def format_table(runs: list[dict[str, Any]]) -> str:
    """Return the figures of the last run, and a line about each of the earlier ones."""
    last = runs[-1]

    def format_range(name: str, unit: str = "") -> str:
        least, most = last["ranges"][name]
        return f"{least:,} to {most:,}{unit}"

    lag = "over 120 s" if last["seconds_behind"] is None else f"{last['seconds_behind']:.1f} s"
    highest = f", {last['rate'] / last['highest']:.0%} of the highest that it kept up with" if last["highest"] else ""
    checkpoint = format_range("checkpoint_files"), format_range("checkpoint_megabytes", " MB")
    heaps = ", ".join(f"{heap:.0f} MB" for heap in last["live_heap_megabytes"] if heap is not None)
    undone = f", which undid {sum(last['rewinds']):,} batches" if last["rewinds"] else ""
    rows = [
        ("duration", f"{last['minutes']:g} minutes, until {last['ended']}, at version {last['commit']}"),
        ("records a second", f"{last['rate']:,}{highest}"),
        ("records sent and counted", f"{last['sent']:,} and {last['counted']:,}"),
        ("batches", f"{last['batches']:,}"),
        ("rewinds while records arrive", f"{len(last['rewinds'])}{undone}"),
        ("restore points at the end, one a minute, each kept for 10 minutes", str(last["points"])),
        ("lag when the generator stopped", lag),
        ("driver memory (JVM and Python) after the first third", format_range("driver_megabytes", " MB")),
        ("live heap after one third, two thirds and at the end", heaps),
        ("state rows after the first third", format_range("state_rows")),
        ("checkpoint files after the first third", ", ".join(checkpoint)),
        ("memory of the page's server", format_range("page_megabytes", " MB")),
        *((name, "yes" if verdict else "**no**") for name, verdict in last["verdicts"].items()),
    ]
    lines = ["| figure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    return "\n".join([*lines, *_about_all(runs)])


def _about_all(runs: list[dict[str, Any]]) -> list[str]:
    """Return a sentence about all runs, if there are several."""
    if len(runs) == 1:
        return []
    hours, sent, counted = (sum(run[name] for run in runs) for name in ("minutes", "sent", "counted"))
    rewinds = sum(len(run["rewinds"]) for run in runs)
    failed = sum(not all(run["verdicts"].values()) for run in runs)
    return [
        "",
        f"All {len(runs)} runs: {hours / 60:.1f} hours, {sent:,} records sent and {counted:,} counted, {rewinds} rewinds, "
        f"{failed} runs failed.",
    ]
