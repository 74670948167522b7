"""Which fields of a store a migration keeps, casts, adds and drops. Nothing is read or written.

Fields are matched by name. The fields of an aggregation are matched by aggregate function, because the state names all
sums ``sum``: those of one function stay together, and are kept only if its expression is the recorded one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from headwater.core.errors import ChangeRefused
from headwater.migration.field_plan import Buffer, DroppedField, FieldPlan, RequestedFields, StorePlan, Unit
from headwater.migration.state_shapes import type_text
from headwater.migration.wider_types import alike, widens, without_casts
from headwater.statefiles.sqltypes import Struct, distinct, parse_type
from headwater.statefiles.stores import JOIN, StateTarget


def plan_store(
    old: StateTarget,
    new: StateTarget,
    requested: RequestedFields,
    *,
    recorded: Sequence[Unit] | None = None,
    current: Sequence[Unit] | None = None,
    keys: tuple[str, ...] | None = None,
    checkpoint: str = "CKPT",
) -> StorePlan:
    """Plan the fields of a store, with these expressions for its keys if they change.

    Raise ``ChangeRefused`` if a field has no origin that is certainly right.
    ``recorded`` and ``current`` are the functions of an aggregation before and after the change; None if unknown.
    ``checkpoint`` is its name in commands.
    """
    planner = _Planner(old, new, requested, keys, checkpoint)
    before, after = _fields(old.schema.value_json), _fields(new.schema.value_json)
    if current is None:
        value, used = planner.by_name(before, after, _value_names(new, after))
        dropped = [DroppedField(one["name"], type_text(one["type"])) for at, one in enumerate(before) if at not in used]
        plan = StorePlan(old, new, value, tuple(dropped), keys=keys)
        if new.operator_name == JOIN:
            _refuse_replaced(plan)
        return plan
    return planner.by_aggregate(before, after, recorded, current)


def _refuse_replaced(plan: StorePlan) -> None:
    """Raise ``ChangeRefused`` if a side of a join would lose fields and get others: it may be the other side's rows."""
    added = [one.name for one in plan.fields if one.origin == "null"]
    if added and plan.all_dropped:
        raise ChangeRefused(
            "needs-value",
            "the rows of one side of the join do not have the fields that the code expects",
            evidence={
                "state": plan.old.label,
                "only in the checkpoint": ", ".join(one.name for one in plan.all_dropped),
                "only in the code": ", ".join(added),
            },
            remedy=_set(added[0]),
        )


class _Planner:
    """Plans the fields of one store."""

    def __init__(
        self,
        old: StateTarget,
        new: StateTarget,
        requested: RequestedFields,
        keys: tuple[str, ...] | None,
        checkpoint: str,
    ) -> None:
        self._old, self._new, self._requested, self._keys = old, new, requested, keys
        self._checkpoint = checkpoint

    def by_name(
        self, before: list[dict[str, Any]], after: list[dict[str, Any]], names: list[str]
    ) -> tuple[tuple[FieldPlan, ...], set[int]]:
        """Return the fields of a struct, and the places of the old fields that they continue."""
        places = {label: at for at, label in enumerate(_numbered(before))}
        found, used = [], set()
        for name, label, target in zip(names, _numbered(after), after, strict=True):
            at = places.get(label)
            if at is not None:
                used.add(at)
            found.append(self._field(name, target, None if at is None else before[at], at))
        return tuple(found), used

    def by_aggregate(
        self,
        before: list[dict[str, Any]],
        after: list[dict[str, Any]],
        recorded: Sequence[Unit] | None,
        current: Sequence[Unit],
    ) -> StorePlan:
        """Return the plan of an aggregation's values: first the copy of a key that some operators have, then functions."""
        first = len(after) - sum(unit.size for unit in current)
        copies = first if self._keys is None else _copies(self._old)
        known = recorded if recorded and len(before) - sum(unit.size for unit in recorded) == copies else None
        olds = self._recorded_spans(copies, known) if known else self._spans_by_name(before, after, first, current)
        names = _value_names(self._new, after)
        value = [self._copied(names[at], after[at], before, at) for at in range(first)]
        at, used = first, set(range(copies))
        for number, unit in enumerate(current):
            start = _continued(unit, number, known, olds, before, after[at : at + unit.size])
            value += self._unit(unit, number, names, before, after, at, start)
            if start is not None:
                used.update(range(start, start + unit.size))
            at += unit.size
        texts = [unit.aggregate for unit in known for _ in range(unit.size)] if known else []
        dropped = [
            DroppedField(one["name"], type_text(one["type"]), texts[place - copies] if known else None)
            for place, one in enumerate(before)
            if place not in used
        ]
        by_name = known is None and bool(current)
        return StorePlan(self._old, self._new, tuple(value), tuple(dropped), by_name, self._keys)

    def _recorded_spans(self, first: int, recorded: Sequence[Unit]) -> list[int]:
        found, at = [], first
        for unit in recorded:
            found.append(at)
            at += unit.size
        return found

    def _spans_by_name(
        self, before: list[dict[str, Any]], after: list[dict[str, Any]], first: int, current: Sequence[Unit]
    ) -> list[int]:
        """Return where the old fields of each function begin, by the names of its fields; -1 if there are none.

        Without a record, two functions whose fields have the same names cannot be told from each other.
        """
        spans, at = [], first
        for unit in current:
            spans.append(tuple(one["name"] for one in after[at : at + unit.size]))
            at += unit.size
        found = []
        for names in spans:
            places = [
                place
                for place in range(first, len(before) - len(names) + 1)
                if tuple(one["name"] for one in before[place : place + len(names)]) == names
            ]
            if places and (len(places) > 1 or spans.count(names) > 1):
                raise ChangeRefused(
                    "ambiguous-fields",
                    f"several aggregates have fields named {', '.join(names)}, and no run recorded which is which",
                    evidence={"state": self._old.label, "fields": ", ".join(one["name"] for one in before)},
                    remedy="run the code that wrote the state until a batch is committed, which records its aggregates: "
                    f"headwater run JOB --checkpoint {self._checkpoint}",
                )
            found.append(places[0] if places else -1)
        return found

    def _unit(
        self,
        unit: Unit,
        number: int,
        names: list[str],
        before: list[dict[str, Any]],
        after: list[dict[str, Any]],
        at: int,
        start: int | None,
    ) -> Iterator[FieldPlan]:
        for place in range(unit.size):
            target, name = after[at + place], names[at + place]
            if start is not None:
                source = before[start + place]
                yield self._field(name, target, source, start + place, unit.aggregate)
            else:
                yield self._field(name, target, None, None, unit.aggregate, Buffer(number, place))

    def _copied(self, name: str, target: dict[str, Any], before: list[dict[str, Any]], at: int) -> FieldPlan:
        """Return a field of a value that repeats a field of the key."""
        kind, key = parse_type(target["type"]), self._new.schema.key.names
        if self._keys is not None and target["name"] in key:
            return FieldPlan(name, kind, True, "key", key.index(target["name"]))
        if not alike(parse_type(before[at]["type"]), kind):
            raise keys_differ(self._old, self._new)
        return FieldPlan(name, kind, True, "kept", at)

    def _field(
        self,
        name: str,
        target: dict[str, Any],
        source: dict[str, Any] | None,
        at: int | None,
        aggregate: str | None = None,
        buffer: Buffer | None = None,
    ) -> FieldPlan:
        kind, nullable = parse_type(target["type"]), target.get("nullable") is not False
        new_type = type_text(target["type"])
        request = self._requested.named(self._new, name)
        if request is not None:
            return FieldPlan(
                name,
                kind,
                nullable,
                "given",
                at,
                self._requested.fields[request],
                aggregate=aggregate,
                old_type="" if source is None else type_text(source["type"]),
                new_type=new_type,
            )
        if source is None:
            if buffer is not None:
                return FieldPlan(name, kind, nullable, "initial", buffer=buffer, aggregate=aggregate, new_type=new_type)
            if not nullable:
                raise ChangeRefused(
                    "needs-value",
                    f"{name} is a new field that cannot be null, so it needs a value",
                    evidence={"state": self._old.label, "type": new_type},
                    remedy=_set(name),
                )
            return FieldPlan(name, kind, nullable, "null", new_type=new_type)
        old, old_type = parse_type(source["type"]), type_text(source["type"])
        if old == kind:
            return FieldPlan(name, kind, nullable, "kept", at, aggregate=aggregate, new_type=new_type)
        if isinstance(old, Struct) and isinstance(kind, Struct):
            before, after = source["type"]["fields"], target["type"]["fields"]
            inner = [f"{name}.{one}" for one in distinct([part["name"] for part in after])]
            parts, used = self.by_name(before, after, inner)
            lost = tuple(
                DroppedField(f"{name}.{one['name']}", type_text(one["type"]))
                for place, one in enumerate(before)
                if place not in used
            )
            return FieldPlan(name, kind, nullable, "nested", at, parts=parts, lost=lost, new_type=new_type)
        if widens(old, kind):
            return FieldPlan(
                name, kind, nullable, "cast", at, aggregate=aggregate, old_type=old_type, new_type=new_type
            )
        raise ChangeRefused(
            "type-narrowed",
            f"the new type of {name} cannot represent every old value",
            evidence={"state": self._old.label, "checkpoint": old_type, "code": new_type},
            remedy=_set(name),
        )


def _set(name: str) -> str:
    return f"--set {name}=SQL   (an expression over the old key and value)"


def _continued(
    unit: Unit,
    number: int,
    recorded: Sequence[Unit] | None,
    starts: list[int],
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
) -> int | None:
    """Return where the old fields begin that a function continues; None if it is new.

    A function of a cast continues one without the cast if its fields have become wider: then it computes the same.
    """
    if recorded is None:
        return starts[number] if starts[number] >= 0 else None
    same_size = [(old.aggregate, start) for old, start in zip(recorded, starts, strict=True) if old.size == unit.size]
    for aggregate, start in same_size:
        if aggregate == unit.aggregate:
            return start
    for aggregate, start in same_size:
        if aggregate == without_casts(unit.aggregate) and _is_widened(before[start : start + unit.size], after):
            return start
    return None


def _is_widened(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    pairs = [(parse_type(old["type"]), parse_type(new["type"])) for old, new in zip(before, after, strict=True)]
    return any(old != new for old, new in pairs) and all(old == new or widens(old, new) for old, new in pairs)


def _copies(target: StateTarget) -> int:
    """Return how many fields of a value repeat the key: in session windows, and in the first format of aggregations."""
    repeated = ("session_window", *target.schema.key.names)
    names = target.schema.value.names
    return next((at for at, name in enumerate(names) if name not in repeated), len(names))


def widened_keys(old: StateTarget, new: StateTarget) -> tuple[str, ...] | None:
    """Return the old keys, to be cast, if the new ones differ only in wider types; otherwise None."""
    before, after = old.schema.key, new.schema.key
    if old.schema.encoding != new.schema.encoding or len(before.fields) != len(after.fields):
        return None
    pairs = list(zip(before.fields, after.fields, strict=True))
    if not all(alike(one.type, other.type) or widens(one.type, other.type) for one, other in pairs):
        return None
    return tuple(distinct(before.names))


def _value_names(target: StateTarget, fields: list[dict[str, Any]]) -> list[str]:
    """Return the names of the fields of a value, unique among those of key and value."""
    key = [] if target.is_list else [one["name"] for one in _fields(target.schema.key_json)]
    return distinct([*key, *(one["name"] for one in fields)])[len(key) :]


def keys_differ(old: StateTarget, new: StateTarget) -> ChangeRefused:
    """Return the error for a key with other fields than those of the checkpoint."""
    described = [
        ", ".join(f"{one['name']} {type_text(one['type'])}" for one in _fields(target.schema.key_json)) or "no fields"
        for target in (old, new)
    ]
    return ChangeRefused(
        "keys-differ",
        "the key of the state does not have the fields that the code expects",
        evidence={"state": old.label, "checkpoint": described[0], "code": described[1]},
        remedy='--keys "SQL"   (an expression over the old key and value for each field of the new key)',
    )


def same_key(old: StateTarget, new: StateTarget) -> bool:
    """Return whether the stored keys of both are the same bytes: their fields have the same types in the same order."""
    before, after = old.schema.key, new.schema.key
    return old.schema.encoding == new.schema.encoding and alike(before, after)


def _fields(schema: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(schema)["fields"]
    return found


def _numbered(fields: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return what identifies each field: its name, and its place among fields of that name."""
    counts: dict[str, int] = {}
    labels = []
    for one in fields:
        counts[one["name"]] = counts.get(one["name"], 0) + 1
        labels.append((one["name"], counts[one["name"]]))
    return labels
