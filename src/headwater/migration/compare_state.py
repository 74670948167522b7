"""Compare the stateful operators and state schemas of a checkpoint with those that new code asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from headwater.core.errors import ChangeRefused
from headwater.migration.comparison import Commands, Difference, Verdict
from headwater.migration.operator_matching import OperatorMatch
from headwater.migration.plan_text import interval
from headwater.migration.state_shapes import Field, OperatorShape, StoreShape

_WHY_VALUE = "Spark compares the types of the value's fields one by one and refuses to start"
_WHY_KEY = "Spark compares the types of the key's fields one by one and refuses to start"
_WHY_NULLS = "the stored values are never null, the new ones may be, and Spark refuses to start"
_WHY_OPERATORS = "Spark compares the stateful operators with those that the checkpoint records and refuses to start"
_WHY_RENAMED = "Spark identifies the fields of keys and values by their position"
_WHY_VARIABLE = "Spark adds and removes state variables of transformWithState by itself"


def compare_operators(
    old: tuple[OperatorShape, ...], new: tuple[OperatorShape, ...], match: OperatorMatch, commands: Commands
) -> Iterator[Difference]:
    """Yield the operators that were added and removed, then the differences between the stores of the others."""
    for number in match.removed:
        yield Difference(
            f"stateful operator {number}", old[number].name, None, "needs-migrate", _WHY_OPERATORS, commands.migrate
        )
    for number in match.added:
        yield Difference(
            f"stateful operator {number}", None, new[number].name, "needs-migrate", _WHY_OPERATORS, commands.migrate
        )
    for mine, theirs in match.pairs:
        yield from _compare_stores(old[mine], new[theirs], commands)


def unmatched_operators(
    old: tuple[OperatorShape, ...], new: tuple[OperatorShape, ...], problem: ChangeRefused, commands: Commands
) -> Difference:
    """Return the difference between operators that cannot be matched."""
    names = (", ".join(one.name for one in side) or None for side in (old, new))
    why = f"{_WHY_OPERATORS}; a migration is refused: {problem.evidence['why']}"
    before, after = names
    return Difference("stateful operators", before, after, "needs-new-checkpoint", why, commands.new_checkpoint)


def _compare_stores(old: OperatorShape, new: OperatorShape, commands: Commands) -> Iterator[Difference]:
    label = f"operator {old.id} ({old.name})"
    before, after = {one.name: one for one in old.stores}, {one.name: one for one in new.stores}
    for name in dict.fromkeys([*before, *after]):
        where = f"{label}, {name}" if name else label
        if name not in after:
            yield Difference(f"{where}: state variable", _shown(before[name]), None, "compatible", _WHY_VARIABLE)
        elif name not in before:
            yield Difference(f"{where}: state variable", None, _shown(after[name]), "compatible", _WHY_VARIABLE)
        elif before[name].kind != after[name].kind:
            yield Difference(
                f"{where}: kind of the state variable",
                before[name].kind,
                after[name].kind,
                "needs-new-checkpoint",
                "Spark refuses a state variable that changes its kind",
                f"give the variable a new name, or: {commands.new_checkpoint}",
            )
        else:
            yield from _compare_fields(f"{where}: key", before[name].key, after[name].key, commands, is_key=True)
            yield from _compare_fields(f"{where}: value", before[name].value, after[name].value, commands)


def _compare_fields(
    where: str, old: tuple[Field, ...], new: tuple[Field, ...], commands: Commands, *, is_key: bool = False
) -> Iterator[Difference]:
    types_before, types_after = [one.type for one in old], [one.type for one in new]
    nulls = any(not mine.nullable and theirs.nullable for mine, theirs in zip(old, new, strict=False))
    if _without_names(types_before) == _without_names(types_after) and not nulls:
        for mine, theirs in zip(old, new, strict=True):
            if (mine.name, mine.type) != (theirs.name, theirs.type):
                yield Difference(f"{where} field", str(mine), str(theirs), "compatible", _WHY_RENAMED)
        return
    if is_key:
        yield Difference(
            where,
            ", ".join(one.exact for one in old),
            ", ".join(one.exact for one in new),
            "needs-migrate",
            _WHY_KEY,
            commands.migrate,
        )
        return
    yield from _changed_fields(where, _numbered(old), _numbered(new), commands)


def _changed_fields(
    where: str, old: dict[tuple[str, int], Field], new: dict[tuple[str, int], Field], commands: Commands
) -> Iterator[Difference]:
    """Yield what happened to each field. Fields are matched by name, and by place among those of one name."""
    for name in [*old, *(one for one in new if one not in old)]:
        mine, theirs = old.get(name), new.get(name)
        if mine is None or theirs is None:
            shown = (None if mine is None else str(mine), None if theirs is None else str(theirs))
            yield Difference(f"{where} field", *shown, "needs-migrate", _WHY_VALUE, commands.migrate)
        elif mine.type == theirs.type and not mine.nullable and theirs.nullable:
            yield Difference(f"{where} field", mine.exact, theirs.exact, "needs-migrate", _WHY_NULLS, commands.migrate)
        elif mine.type != theirs.type:
            yield Difference(f"{where} field", str(mine), str(theirs), "needs-migrate", _WHY_VALUE, commands.migrate)
    if sorted(old, key=str) == sorted(new, key=str) and list(old) != list(new):
        shown = (", ".join(map(str, old.values())), ", ".join(map(str, new.values())))
        yield Difference(f"{where}: order of fields", *shown, "needs-migrate", _WHY_VALUE, commands.migrate)


def _numbered(fields: tuple[Field, ...]) -> dict[tuple[str, int], Field]:
    counts: dict[str, int] = {}
    numbered = {}
    for one in fields:
        counts[one.name] = counts.get(one.name, 0) + 1
        numbered[one.name, counts[one.name]] = one
    return numbered


def _without_names(types: list[str]) -> list[str]:
    """Return types without the names of nested fields, which Spark does not compare either."""
    return [re.sub(r"[^<>,]+: ", "", text) for text in types]


def _shown(store: StoreShape) -> str:
    return f"{store.kind} {', '.join(map(str, store.value))}"


def judged(differences: list[Difference], refusal: str | None, commands: Commands) -> list[Difference]:
    """Return differences in the state as Spark judges them. ``refusal`` is Spark's error; None if it accepts the state."""
    blocking = [one for one in differences if one.verdict in ("needs-migrate", "needs-new-checkpoint")]
    if refusal is None:
        return [_accepted(one) if one in blocking else one for one in differences]
    if blocking:
        return differences
    why = "Spark refuses to start the query on this state"
    generic = Difference("state", None, refusal, "needs-new-checkpoint", why, commands.new_checkpoint)
    return [*differences, generic]


def with_remedies(differences: list[Difference], problem: ChangeRefused | None, commands: Commands) -> list[Difference]:
    """Return differences with the command that migrates the state, or with another verdict if none can."""
    if problem is None:
        return differences
    verdict: Verdict = "needs-new-checkpoint"
    remedy, why = commands.new_checkpoint, f"; a migration is refused: {problem.problem}"
    if (problem.remedy or "").startswith("--"):
        verdict, remedy, why = "needs-migrate", f"{commands.migrate} {problem.remedy}", f"; {problem.problem}"
    elif problem.code == "ambiguous-fields":
        verdict, why = "needs-migrate", f"; {problem.problem}"
        remedy = f"{commands.run}   (with the code that wrote the state, until a batch is committed), then: {commands.migrate}"
    return [
        replace(one, verdict=verdict, remedy=remedy, why=one.why + why) if one.verdict == "needs-migrate" else one
        for one in differences
    ]


def _accepted(one: Difference) -> Difference:
    if one.what.startswith("stateful operator"):
        why = "Spark starts; state that no operator uses any more is ignored, and a new operator begins without state"
        return replace(one, verdict="changes-meaning", why=why, remedy=None)
    return replace(one, verdict="compatible", why="Spark reads the old state with the new schema", remedy=None)


def compare_delays(
    old: tuple[OperatorShape, ...], new: tuple[OperatorShape, ...], match: OperatorMatch, commands: Commands
) -> Iterator[Difference]:
    """Yield changed watermark delays. Schemas have those of the first batch, which helps where no run was recorded."""
    for mine, theirs in ((old[one], new[other]) for one, other in match.pairs):
        for before, after in zip(mine.stores, theirs.stores, strict=False):
            delays = before.delay_ms, after.delay_ms
            if None not in delays and delays[0] != delays[1]:
                yield Difference(
                    f"operator {mine.id} ({mine.name}): watermark",
                    interval((delays[0] or 0) * 1000),
                    interval((delays[1] or 0) * 1000),
                    "changes-meaning",
                    "Spark accepts it; other records are late, and state expires at another time",
                    commands.accept,
                )
                break
