"""Why a batch took as long as it did: the phases that Spark reports, compared with those of other batches.

Also how evenly the rows of the state are spread over its partitions, because one task handles each partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from headwater.checkpoint.record import ProgressRecord
from headwater.core.text import count
from headwater.views.formatting import format_duration

TOTAL, OTHER = "triggerExecution", "other"
COMPARED_BATCHES = 60
LEAST_BATCHES = 3
# In the order in which Spark runs them; others follow.
ORDER = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets", "commitBatch")
_NOTABLE = 1.5
_SKEWED, _LEAST_ROWS = 2.0, 100


@dataclass(frozen=True)
class PhaseBar:
    """The phases of a batch, or the median of several ones, in milliseconds. ``label`` names it."""

    label: str
    phases: Mapping[str, int]

    @property
    def total_ms(self) -> int:
        return sum(self.phases.values())


@dataclass(frozen=True)
class PhaseComparison:
    """The phases of a batch beside the medians of the batches with input before it, and beside another batch."""

    batch: PhaseBar
    usual: PhaseBar | None
    other: PhaseBar | None
    compared: int

    @property
    def bars(self) -> list[PhaseBar]:
        return [bar for bar in (self.batch, self.usual, self.other) if bar is not None]

    @property
    def names(self) -> list[str]:
        """The phases of all bars, in the order in which Spark runs them."""
        found = {name for bar in self.bars for name in bar.phases}
        known = [name for name in ORDER if name in found]
        return [*known, *sorted(found - {*known, OTHER}), *([OTHER] if OTHER in found else [])]

    def __str__(self) -> str:
        """Return a sentence on how long the batch took, and which phase made the difference."""
        took = f"{self.batch.label} took {format_duration(self.batch.total_ms)}"
        if self.usual is None or not self.usual.total_ms:
            return f"{took}. There are too few batches to compare it with."
        ratio = self.batch.total_ms / self.usual.total_ms
        usual = f"{format_duration(self.usual.total_ms)}, the median of {count(self.compared, 'batch')}"
        if 1 / _NOTABLE < ratio < _NOTABLE:
            return f"{took}, about as long as others ({usual})."
        longest = max(self.names, key=lambda name: abs(self._difference(name)))
        difference = self._difference(longest)
        how = "longer" if difference > 0 else "less"
        return (
            f"{took}, {ratio:.1f} times as long as others ({usual}): "
            f"{longest} took {format_duration(abs(difference))} {how}."
        )

    def _difference(self, name: str) -> int:
        assert self.usual is not None
        return self.batch.phases.get(name, 0) - self.usual.phases.get(name, 0)


def compare_phases(
    progress: Mapping[int, ProgressRecord], batch: int, other: int | None = None
) -> PhaseComparison | None:
    """Return the phases of a batch, compared; None if they were not recorded."""
    record = progress.get(batch)
    if record is None or not _phases(record):
        return None
    earlier = [progress[number] for number in sorted(progress) if number < batch and _phases(progress[number])]
    # A batch without input skips most of the work.
    alike = [one for one in earlier if bool(one.input_rows) == bool(record.input_rows)][-COMPARED_BATCHES:]
    usual = _median(alike) if len(alike) >= LEAST_BATCHES else None
    beside = progress.get(other) if other is not None and other != batch else None
    return PhaseComparison(
        PhaseBar(f"batch {batch}", _phases(record)),
        usual,
        PhaseBar(f"batch {other}", _phases(beside)) if beside and _phases(beside) else None,
        len(alike),
    )


def _phases(record: ProgressRecord) -> dict[str, int]:
    """Return the phases, and the rest of the time that Spark names no phase for."""
    numbers = {
        name: value
        for name, value in (record.durations_ms if isinstance(record.durations_ms, dict) else {}).items()
        if isinstance(value, int) and value >= 0
    }
    total = numbers.pop(TOTAL, 0)
    rest = total - sum(numbers.values())
    return numbers | ({OTHER: rest} if rest > 0 else {})


def _median(records: Sequence[ProgressRecord]) -> PhaseBar:
    phases = [_phases(record) for record in records]
    names = {name for one in phases for name in one}
    return PhaseBar("median", {name: int(median(one.get(name, 0) for one in phases)) for name in names})


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
    if usual and rows[largest] / usual >= _SKEWED and total >= _LEAST_ROWS:
        return f"Skewed: {share}, {rows[largest] / usual:.1f} times the median{without}."
    return f"The largest {share}{without}."
