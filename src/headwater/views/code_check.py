"""The comparison of a job with a checkpoint as text, for the terminal and notebooks."""

from __future__ import annotations

from headwater.core.text import count
from headwater.migration.comparison import Comparison, Difference, Verdict

TITLES: dict[Verdict, str] = {
    "same": "same",
    "compatible": "compatible",
    "changes-meaning": "compatible but changes meaning",
    "needs-migrate": "needs migrate",
    "needs-new-checkpoint": "needs a new checkpoint",
}
_MEANINGS: dict[Verdict, str] = {
    "same": "the code resumes from this checkpoint, and nothing in it has changed",
    "compatible": "the code resumes from this checkpoint, and the state keeps its meaning",
    "changes-meaning": "Spark starts the code on this checkpoint without an error, but the state means something else",
    "needs-migrate": "Spark refuses the code on this checkpoint until the state has been migrated",
    "needs-new-checkpoint": "the code cannot resume from this checkpoint",
}


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return the lines that the terminal shows: the verdict, each difference, and what could not be compared."""
    verdict = comparison.verdict
    found = len(comparison.differences)
    lines = [f"{comparison.job} on {comparison.checkpoint}: {TITLES[verdict]}", f"  {_MEANINGS[verdict]}"]
    if found:
        lines += ["", f"{count(found, 'difference')}:"]
    for one in sorted(comparison.differences, key=lambda one: one.verdict != verdict):
        lines += _difference_lines(one)
    return [*lines, *(f"note: {text}" for text in comparison.notes)]


def _difference_lines(one: Difference) -> list[str]:
    lines = [f"  {one.what}   [{TITLES[one.verdict]}]"]
    lines += [
        f"    checkpoint  {one.old or 'none'}",
        f"    code        {one.new or 'none'}",
        f"    why         {one.why}",
    ]
    return lines + ([f"    help        {one.remedy}"] if one.remedy else [])
