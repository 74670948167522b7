"""The first batch at which a condition on the state holds.

A condition on single rows can become true only by a row that a batch wrote, so after the oldest state only each batch's
own changes are looked at: exact, and cheaper than rebuilding states. Any other condition is found by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.statefiles.columns import column_types
from headwater.statefiles.latest import surviving
from headwater.statefiles.partition import TargetStore
from headwater.statefiles.reader import StateAnswer, StateReader
from headwater.statefiles.records import Records, one_after_another
from headwater.statefiles.stores import StateTarget
from headwater.timemachine.diff import written_since


@dataclass(frozen=True)
class Bisected:
    """``first_batch`` is None when the condition was found nowhere; ``tested`` are batches in the order of asking."""

    first_batch: int | None
    tested: tuple[int, ...]


def first_by_changes(
    reader: StateReader, target: StateTarget, batches: Sequence[int], holds: Callable[[StateAnswer], bool]
) -> Bisected:
    """Ask about the oldest state, and then about the rows that each batch wrote."""
    tested: list[int] = []
    for number, batch in enumerate(batches):
        tested.append(batch)
        answer = reader.answer(target, batch) if number == 0 else _written(reader, target, batches[number - 1], batch)
        if holds(answer):
            return Bisected(batch, tuple(tested))
    return Bisected(None, tuple(tested))


def _written(reader: StateReader, target: StateTarget, before: int, batch: int) -> StateAnswer:
    """The rows that are in the state as of a batch because batches after ``before`` wrote them."""
    parts: list[Records] = []
    partitions: list[np.ndarray] = []
    for key in reader.stores(target, batch):
        store = TargetStore(reader, target, key)
        changes = store.changes(batch) if before == batch - 1 else None
        rows = written_since(store, before, batch) if changes is None else surviving(changes)
        parts.append(rows)
        partitions.append(np.full(len(rows), key.partition_id, np.int32))
    numbers = np.concatenate([*partitions, np.zeros(0, np.int32)])
    table = reader.decoded(target, one_after_another(parts), numbers, batch)
    return StateAnswer(target.operator_id, target.store, target.var, column_types(target), table)


def halve(batches: Sequence[int], holds: Callable[[int], bool]) -> Bisected:
    """Halve the batches until one is left, as if the condition, once true, stayed so.

    One that does not hold at the end did not stay: then every batch is asked about, the oldest first.
    """
    tested: list[int] = []

    def ask(batch: int) -> bool:
        tested.append(batch)
        return holds(batch)

    if not batches or not ask(batches[-1]):
        first = next((batch for batch in batches[:-1] if ask(batch)), None)
        return Bisected(first, tuple(tested))
    low, high = 0, len(batches) - 1
    while low < high:
        middle = (low + high) // 2
        if ask(batches[middle]):
            high = middle
        else:
            low = middle + 1
    return Bisected(batches[high], tuple(tested))
