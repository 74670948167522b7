"""The first batch at which a condition on the state holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bisected:
    """``first_batch`` is None when the condition does not hold at the last batch; ``tested`` are in the order of asking."""

    first_batch: int | None
    tested: tuple[tuple[int, bool], ...]


def bisect(batches: Sequence[int], holds: Callable[[int], bool]) -> Bisected:
    """Halve the batches until one is left, as if the condition, once true, stayed so. Asks about ever fewer batches."""
    tested: list[tuple[int, bool]] = []

    def ask(batch: int) -> bool:
        tested.append((batch, holds(batch)))
        return tested[-1][1]

    if not batches or not ask(batches[-1]):
        return Bisected(None, tuple(tested))
    low, high = 0, len(batches) - 1
    while low < high:
        middle = (low + high) // 2
        if ask(batches[middle]):
            high = middle
        else:
            low = middle + 1
    return Bisected(batches[high], tuple(tested))
