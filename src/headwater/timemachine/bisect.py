"""Find the first batch after which a condition on the state holds.

A condition on single rows can become true only through a row that a batch wrote. So after the oldest state only the
changes of each batch are checked, which is exact and cheaper than rebuilding states. Any other condition is found by
binary search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.columns import column_types
from headwater.statefiles.live_rows import live_rows
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import Records, concat_ranked
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.diff import written_since


@dataclass(frozen=True)
class Bisected:
    """The first batch, None if the condition never holds; ``tested`` are the batches in the order of the tests."""

    first_batch: int | None
    tested: tuple[int, ...]


def first_by_changes(
    reader: StateReader, target: StateTarget, batches: Sequence[int], holds: Callable[[StateAnswer], bool]
) -> Bisected:
    """Test the oldest state, and then the rows that each batch wrote."""
    for number, batch in enumerate(batches):
        answer = reader.answer(target, batch) if number == 0 else _written(reader, target, batches[number - 1], batch)
        if holds(answer):
            return Bisected(batch, tuple(batches[: number + 1]))
    return Bisected(None, tuple(batches))


def _written(reader: StateReader, target: StateTarget, before: int, batch: int) -> StateAnswer:
    """Return the rows in the state as of a batch that batches after ``before`` wrote."""
    if any(reader.is_repartitioned(number) for number in range(before + 1, batch + 1)):
        return reader.answer(target, batch)
    parts: list[Records] = []
    partitions: list[np.ndarray] = []
    for key in reader.stores(target, batch):
        store = reader.partition(target, key)
        changes = store.changes(batch) if before == batch - 1 else None
        rows = written_since(store, before, batch) if changes is None else live_rows(changes)
        parts.append(rows)
        partitions.append(np.full(len(rows), key.partition_id, np.int32))
    numbers = np.concatenate([*partitions, np.zeros(0, np.int32)])
    return StateAnswer.of(target, column_types(target), reader.decode(target, concat_ranked(parts), numbers, batch))


def binary_search(batches: Sequence[int], holds: Callable[[int], bool]) -> Bisected:
    """Find the first batch on the assumption that a condition, once true, stays true.

    If it does not hold after the last batch, the assumption is wrong, and every batch is tested, the oldest first.
    """
    tested: list[int] = []

    def test(batch: int) -> bool:
        tested.append(batch)
        return holds(batch)

    if not batches or not test(batches[-1]):
        first = next((batch for batch in batches[:-1] if test(batch)), None)
        return Bisected(first, tuple(tested))
    low, high = 0, len(batches) - 1
    while low < high:
        middle = (low + high) // 2
        if test(batches[middle]):
            high = middle
        else:
            low = middle + 1
    return Bisected(batches[high], tuple(tested))
