"""Which fields of which store change when state is brought to what new code asks for. Nothing is read or written.

Fields of a value are matched by name. Where the runs recorded them, the aggregates of an aggregation are matched by their
expressions instead: the state names all sums ``sum``, and a matched name could be that of another sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headwater.checkpoint.plan_record import StatefulOperator
from headwater.core.errors import ChangeRefused
from headwater.migration.compare_state import widens
from headwater.migration.plan_text import BUFFER_SIZES
from headwater.migration.state_shapes import Field, OperatorShape, StoreShape

Origin = Literal["kept", "cast", "initial", "given"]


@dataclass(frozen=True)
class FieldPlan:
    """Where the values of a field come from: an old field, a cast of it, Spark's initial buffer, or an expression."""

    target: Field
    origin: Origin
    source: Field | None = None
    expression: str | None = None
    aggregate: str | None = None
    """The aggregate function whose initial buffer has the value, if it is known."""


@dataclass(frozen=True)
class StorePlan:
    """What becomes of a store: the fields of its new key and value, and the old fields that are dropped."""

    operator_id: int
    store: str
    key: tuple[FieldPlan, ...]
    value: tuple[FieldPlan, ...]
    dropped: tuple[Field, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Whether the new rows are the old ones."""
        return not self.dropped and all(one.origin == "kept" for one in (*self.key, *self.value))


@dataclass(frozen=True)
class StatePlan:
    """What becomes of all stores. New operators begin with empty stores; the state of removed ones is set aside."""

    stores: tuple[StorePlan, ...]
    added: tuple[OperatorShape, ...] = ()
    removed: tuple[OperatorShape, ...] = ()


@dataclass(frozen=True)
class Wishes:
    """What the user asks for: expressions for fields of values, and for the fields of a changed key."""

    fields: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()


def plan_fields(
    old: tuple[OperatorShape, ...],
    new: tuple[OperatorShape, ...],
    wishes: Wishes,
    *,
    recorded: tuple[StatefulOperator, ...] = (),
    current: tuple[StatefulOperator, ...] = (),
) -> StatePlan:
    """Plan the fields of all stores. Raise ``ChangeRefused`` if a field has no origin that is certainly right.

    ``recorded`` and ``current`` are the stateful operators by their ids, if they are known.
    """
    pairs, added, removed = _matched(old, new)
    stores: list[StorePlan] = []
    for mine, theirs in pairs:
        aggregates = _aggregates(recorded, mine.id), _aggregates(current, theirs.id)
        for before in mine.stores:
            after = next((one for one in theirs.stores if one.name == before.name), None)
            if after is not None:
                stores.append(_store_plan(theirs, before, after, wishes, aggregates))
    return StatePlan(tuple(stores), added, removed)


def _matched(
    old: tuple[OperatorShape, ...], new: tuple[OperatorShape, ...]
) -> tuple[list[tuple[OperatorShape, OperatorShape]], tuple[OperatorShape, ...], tuple[OperatorShape, ...]]:
    """Pair the operators of both sides in order; those without a counterpart are added or removed."""
    pairs: list[tuple[OperatorShape, OperatorShape]] = []
    shorter, longer = (old, new) if len(old) <= len(new) else (new, old)
    rest = list(longer)
    extra: list[OperatorShape] = []
    for one in shorter:
        while rest and rest[0].name != one.name:
            extra.append(rest.pop(0))
        if not rest:
            raise ChangeRefused(
                "operators-differ",
                "the stateful operators of the code are not those of the checkpoint",
                evidence={
                    "checkpoint": ", ".join(found.name for found in old) or "none",
                    "code": ", ".join(found.name for found in new) or "none",
                },
                remedy="use a new checkpoint",
            )
        partner = rest.pop(0)
        pairs.append((one, partner) if shorter is old else (partner, one))
    extra += rest
    return pairs, tuple(extra) if shorter is old else (), tuple(extra) if shorter is not old else ()


def _aggregates(operators: tuple[StatefulOperator, ...], number: int) -> list[str]:
    """Return the aggregate of each field of an operator's values; empty if unknown."""
    if number >= len(operators):
        return []
    facts = operators[number].facts
    sizes = facts.get(BUFFER_SIZES, ())
    return [text for text, size in zip(facts.get("aggregates", ()), sizes, strict=False) for _ in range(int(size))]


def _store_plan(
    operator: OperatorShape,
    old: StoreShape,
    new: StoreShape,
    wishes: Wishes,
    aggregates: tuple[list[str], list[str]],
) -> StorePlan:
    known = all(aggregates) and len(aggregates[0]) <= len(old.value) and len(aggregates[1]) <= len(new.value)
    before = _labels(old.value, aggregates[0] if known else [])
    after = _labels(new.value, aggregates[1] if known else [])
    sources = dict(zip(before, old.value, strict=True))
    value = tuple(
        _field_plan(target, sources.get(label), wishes, label[0] or None)
        for label, target in zip(after, new.value, strict=True)
    )
    dropped = tuple(one for label, one in sources.items() if label not in after)
    return StorePlan(operator.id, new.name, tuple(_key_plan(old, new, wishes)), value, dropped)


def _labels(fields: tuple[Field, ...], aggregates: list[str]) -> list[tuple[str, str, int]]:
    """Return what identifies each field: its aggregate if known, its name, and its place among equal ones.

    Values of session windows have the fields of the key before those of the aggregates.
    """
    counts: dict[tuple[str, str], int] = {}
    labels = []
    first = len(fields) - len(aggregates)
    for place, one in enumerate(fields):
        known = aggregates[place - first] if place >= first else ""
        counts[known, one.name] = counts.get((known, one.name), 0) + 1
        labels.append((known, one.name, counts[known, one.name]))
    return labels


def _field_plan(target: Field, source: Field | None, wishes: Wishes, aggregate: str | None) -> FieldPlan:
    if target.name in wishes.fields:
        return FieldPlan(target, "given", source, wishes.fields[target.name], aggregate)
    if source is None:
        return FieldPlan(target, "initial", aggregate=aggregate)
    if source.type == target.type:
        return FieldPlan(target, "kept", source, aggregate=aggregate)
    if widens(source.type, target.type):
        return FieldPlan(target, "cast", source, aggregate=aggregate)
    raise ChangeRefused(
        "type-narrowed",
        f"not every old value of {target.name} is a value of its new type",
        evidence={"checkpoint": source.type, "code": target.type},
        remedy=f"--set {target.name}='CAST({source.name} AS {target.type})', or another expression",
    )


def _key_plan(old: StoreShape, new: StoreShape, wishes: Wishes) -> Iterator[FieldPlan]:
    if wishes.keys and len(wishes.keys) == len(new.key):
        yield from (FieldPlan(one, "given", None, text) for one, text in zip(new.key, wishes.keys, strict=True))
        return
    if [one.type for one in old.key] != [one.type for one in new.key]:
        raise ChangeRefused(
            "keys-differ",
            "the key of the state has other fields than the code asks for",
            evidence={"checkpoint": ", ".join(map(str, old.key)), "code": ", ".join(map(str, new.key))},
            remedy=f'--keys "{", ".join(one.name for one in new.key)}", with an expression over the old key for each field',
        )
    yield from (FieldPlan(target, "kept", source) for source, target in zip(old.key, new.key, strict=True))
