"""How evenly the rows of a state are spread over its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from headwater.core.text import count

NOTABLE, LEAST_ROWS = 2.0, 100


def explain_skew(rows: Mapping[int, int]) -> str:
    """Return a sentence on the partition with the most rows, given the rows of each partition."""
    total = sum(rows.values())
    if not rows or not total:
        return "The state has no rows."
    if len(rows) == 1:
        return f"All {count(total, 'row')} are in one partition."
    largest = max(rows, key=lambda partition: rows[partition])
    usual = median(rows.values())
    share = f"partition {largest} has {rows[largest]:,} of {count(total, 'row')} ({rows[largest] / total:.0%})"
    empty = sum(number == 0 for number in rows.values())
    without = f"; {count(empty, 'partition')} of {len(rows)} without rows" if empty else ""
    if usual and rows[largest] / usual >= NOTABLE and total >= LEAST_ROWS:
        return f"Skewed: {share}, {rows[largest] / usual:.1f} times the median{without}."
    return f"The largest {share}{without}."
