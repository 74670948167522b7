"""Compare what the state means: the recorded stateful operators with those of new code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.checkpoint.plan_record import RecordedPlan, StatefulOperator
from headwater.migration.comparison import Commands, Difference
from headwater.migration.plan_text import BUFFER_SIZES

_WHY = {
    "keys": "Spark compares the types of keys only; old rows would be found under keys of another meaning",
    "aggregates": "Spark compares the types of values only; old values would be continued with another function",
    "watermark": "Spark accepts it; other records are late, and state expires at another time",
    "filters": "Spark accepts it; the state has counted records by another condition",
    "condition": "Spark accepts it; rows in the state were stored under another condition",
    "type": "Spark accepts it; the join emits other rows, also for those in the state",
    "kept columns": "Spark compares types only; rows in the state have other contents",
    "limit": "Spark accepts it; the rows that were emitted so far count toward the new limit",
}
_WHY_OTHER = "Spark accepts it without an error"
_WHY_CODE = "the code of the function was edited; whether it still means the same cannot be known without running it"
# What cannot be compared by text alone, because the schemas of the state differ as well.
_COUNTED = ("aggregates", "keys", "kept columns")


def can_compare(recorded: RecordedPlan, spark_version: str) -> bool:
    """Return whether expressions were recorded by the same release of Spark, so that they look alike if they are."""
    return _release(recorded.spark_version) == _release(spark_version)


def compare_meaning(
    recorded: tuple[StatefulOperator, ...],
    current: tuple[StatefulOperator, ...],
    commands: Commands,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> Iterator[Difference]:
    """Yield the facts that differ. Added and removed operators are left to the comparison of the state itself.

    ``pairs`` are the old and new numbers of the operators that stay; by default they all do.
    """
    if pairs is None:
        pairs = [(number, number) for number in range(len(recorded))] if len(recorded) == len(current) else ()
    if any(old >= len(recorded) or new >= len(current) for old, new in pairs):
        return
    chosen = [(number, recorded[number], current[other]) for number, other in pairs]
    if any(old.kind != new.kind for _, old, new in chosen):
        return
    for number, old, new in chosen:
        label = f"operator {number} ({old.kind})"
        for name in dict.fromkeys([*old.facts, *new.facts]):
            before, after = old.facts.get(name, ()), new.facts.get(name, ())
            if name == BUFFER_SIZES:
                continue
            if name == "python":
                yield from _compare_code(label, before, after, commands)
            elif before != after and not (name in _COUNTED and len(before) != len(after)):
                shown = ", ".join(before) or None, ", ".join(after) or None
                moved = "order of " if name in _COUNTED and sorted(before) == sorted(after) else ""
                why = _WHY.get(name, _WHY_OTHER)
                yield Difference(f"{label}: {moved}{name}", *shown, "changes-meaning", why, commands.accept)


def _compare_code(
    label: str, before: tuple[str, ...], after: tuple[str, ...], commands: Commands
) -> Iterator[Difference]:
    """Yield functions whose code was edited, in the order of the plan; digests of another Python are not compared."""
    if len(before) != len(after):
        shown = ", ".join(before) or None, ", ".join(after) or None
        yield Difference(f"{label}: Python functions", *shown, "compatible", _WHY_CODE, _replay(commands))
        return
    for one, other in zip(before, after, strict=True):
        (old_name, old), (name, new) = _digest(one), _digest(other)
        versions = {old.partition(":")[0], new.partition(":")[0]}
        if len(versions) == 1 and (old_name, old) != (name, new):
            yield Difference(f"{label}: code of {name}", one, other, "compatible", _WHY_CODE, _replay(commands))


def _replay(commands: Commands) -> str:
    return f"headwater replay OLD_JOB {commands.checkpoint} --batch N --against {commands.job}   (compares the output)"


def _digest(text: str) -> tuple[str, str]:
    name, _, digest = text.rpartition(" ")
    return name, digest


def _release(version: str) -> list[str]:
    return version.split(".")[:2]
