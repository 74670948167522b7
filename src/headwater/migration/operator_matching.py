"""Which stateful operators of new code are which of a checkpoint's: Spark numbers them by their place in the plan.

An added or removed operator gives those below it other numbers. Operators are matched by their kind, in their order, and
those of one kind by what they mean, as each run records it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.checkpoint.plan_record import StatefulOperator
from headwater.core.errors import ChangeRefused
from headwater.migration.state_shapes import UNKNOWN

Pairs = tuple[tuple[int, int], ...]
Meanings = Sequence[StatefulOperator] | None
# More combinations than any query has.
_MOST = 144


@dataclass(frozen=True)
class OperatorMatch:
    """The operators that stay, as pairs of an old and a new number, and those that are added and removed."""

    pairs: Pairs
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether any operator is added, removed, or has another number."""
        return bool(self.added or self.removed)

    @property
    def origins(self) -> dict[int, int]:
        """The old numbers of the operators that stay, by their new ones."""
        return {new: old for old, new in self.pairs}


def match_operators(
    old: Sequence[str], new: Sequence[str], before: Meanings = None, after: Meanings = None
) -> OperatorMatch:
    """Match operators by their names, which are Spark's; ``before`` and ``after`` are what they mean, if that is known.

    Raise ``ChangeRefused`` if no operator stays, or if it is not certain which one does.
    """
    if len(old) == len(new) and all(mine in (UNKNOWN, theirs) for mine, theirs in zip(old, new, strict=True)):
        return OperatorMatch(tuple((number, number) for number in range(len(old))))
    known = before if before is not None and len(before) == len(old) else None
    meant = after if after is not None and len(after) == len(new) else None
    if UNKNOWN in old or len(old) * len(new) > _MOST:
        raise _unclear(old, new, "the checkpoint does not name its operators")
    candidates = list(_matchings(old, new))
    best = max(map(len, candidates))
    if best == 0:
        raise _refused(old, new, "no operator of the checkpoint is left, so no state can be kept")
    scores = {pairs: _likeness(pairs, known, meant) for pairs in dict.fromkeys(candidates) if len(pairs) == best}
    top = max(scores.values())
    chosen = [pairs for pairs, score in scores.items() if score == top]
    if len(chosen) > 1 or (len(scores) > 1 and top == (0, 0)):
        raise _unclear(old, new, "operators of one kind cannot be told apart by what was recorded of them")
    (pairs,) = chosen
    return OperatorMatch(
        pairs,
        tuple(number for number in range(len(new)) if number not in {one for _, one in pairs}),
        tuple(number for number in range(len(old)) if number not in {one for one, _ in pairs}),
    )


def _matchings(old: Sequence[str], new: Sequence[str], first: int = 0, start: int = 0) -> Iterator[Pairs]:
    """Yield all ways to pair operators of one kind without changing their order."""
    yield ()
    for mine in range(first, len(old)):
        for theirs in range(start, len(new)):
            if old[mine] == new[theirs]:
                for rest in _matchings(old, new, mine + 1, theirs + 1):
                    yield ((mine, theirs), *rest)


def _likeness(pairs: Pairs, before: Meanings, after: Meanings) -> tuple[int, int]:
    """Return how many pairs mean the same, and how many have the same keys."""
    if before is None or after is None:
        return 0, 0
    facts = [(before[old].facts, after[new].facts) for old, new in pairs]
    return (
        sum(mine == theirs for mine, theirs in facts),
        sum("keys" in mine and mine["keys"] == theirs.get("keys") for mine, theirs in facts),
    )


def _unclear(old: Sequence[str], new: Sequence[str], why: str) -> ChangeRefused:
    return _refused(old, new, f"it is not certain which operators stay: {why}")


def _refused(old: Sequence[str], new: Sequence[str], why: str) -> ChangeRefused:
    return ChangeRefused(
        "operators-differ",
        "the stateful operators of the code cannot be matched with those of the checkpoint",
        evidence={"checkpoint": ", ".join(old) or "none", "code": ", ".join(new) or "none", "why": why},
        remedy="use a new checkpoint: headwater run JOB --checkpoint NEW",
    )


def operator_effects(match: OperatorMatch, old: Sequence[str], new: Sequence[str], batch: int) -> Iterator[str]:
    """Yield what the continued stream differs in from a run of the new code over all records."""
    for number in match.added:
        yield f"operator {number} ({new[number]}) is new and has no state: it knows only records from batch {batch + 1} on"
    for number in match.removed:
        yield (
            f"operator {number} ({old[number]}) is removed with its state: what it held back or waited for is not emitted, "
            "and what it has let through or dropped so far stays as it was"
        )
