"""A migration as text and as JSON: the fields of each store, rows before and after, and what the stream differs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.checkpoint.signs_of_life import running_warnings
from headwater.core.text import count
from headwater.migration.field_plan import FieldPlan
from headwater.migration.migration_plan import MigrationPlan, StoreMigration
from headwater.views.edit_sample import plain, transition
from headwater.views.plans import PlanText, file_counts
from headwater.views.state_cells import Cells

_NOTHING = "nothing: it emits what the new code would emit over all records"


def migration_as_dict(plan: MigrationPlan) -> dict[str, Any]:
    """Return a plan as ``migrate --json`` prints it."""
    found: dict[str, Any] = plain(plan.as_dict())
    return found


def migration_text(plan: MigrationPlan) -> PlanText:
    """Describe a migration: the fields that change, the batch that it adds, and what the continued stream differs in."""
    facts: list[tuple[str, str]] = []
    for store in plan.stores:
        facts.append(("state", f"{store.label}: {count(store.rows, 'row')}"))
        facts += [("", text) for text in _field_lines(store)]
    facts += _places("source", plan.sources, "source", "place") + _places(
        "operator", plan.operators, "operator", "number"
    )
    facts += [
        ("added", f"batch {plan.batch_id}, which reads no input"),
        ("written", file_counts(plan.written)),
    ]
    differs = plan.effects or (_NOTHING,)
    facts += [("differs" if number == 0 else "", text) for number, text in enumerate(differs)]
    if plan.reason:
        facts.append(("reason", plan.reason))
    warnings = (*plan.warnings, *running_warnings(plan.signs_of_life))
    return PlanText(f"Migrate the state of {plan.location} to {plan.job}", tuple(facts), warnings)


def _places(
    label: str, found: Sequence[Mapping[str, str | int | None]], name: str, place: str
) -> list[tuple[str, str]]:
    """Return a line for each source or operator: where it was and where it is to be."""
    lines = []
    for one in found:
        old, new = one[f"old_{place}"], one[f"new_{place}"]
        if old is None:
            text = f"+ {one[name]}: new, at {place} {new}"
        elif new is None:
            text = f"- {one[name]}: removed"
        else:
            text = f"= {one[name]}: kept" if old == new else f"~ {one[name]}: from {place} {old} to {new}"
        lines.append(text)
    return [(f"{label}s" if number == 0 else "", text) for number, text in enumerate(lines)]


def _field_lines(store: StoreMigration) -> list[str]:
    kept = [one for one in store.fields if one.origin == "kept"]
    lines = [f"~ {name}: {text}   (key)" for name, text in store.keys]
    if store.merged:
        rules = ", ".join(f"{name} = {rule}" for name, rule in store.merge.items())
        lines.append(f"~ {count(store.merged, 'row')} merged into others with the same key: {rules}")
    lines += [f"= {', '.join(one.name for one in kept)}: kept"] if kept else []
    lines += [_field_line(one) for one in store.changed]
    lines += [f"- {one.name} {one.type}: dropped{_of(one.aggregate)}" for one in store.dropped]
    return lines


def _field_line(one: FieldPlan) -> str:
    match one.origin:
        case "cast":
            return f"~ {one.name} {one.new_type}: cast from {one.old_type}{_of(one.aggregate)}"
        case "initial":
            return f"+ {one.name} {one.new_type}: Spark's initial value{_of(one.aggregate)}"
        case "null":
            return f"+ {one.name} {one.new_type}: null"
        case "given":
            return f"{'~' if one.old_type else '+'} {one.name} {one.new_type}: {one.expression}{_of(one.aggregate)}"
        case "key":
            return f"~ {one.name}: a copy of the key"
        case _:
            return f"= {one.name}: kept"


def _of(aggregate: str | None) -> str:
    return f"   ({aggregate})" if aggregate else ""


def sample_cells(store: StoreMigration) -> Cells:
    """Return some rows of a store, with each column as ``old → new`` where it differs."""
    columns = list(dict.fromkeys(name for pair in store.sample for row in reversed(pair) for name in row))
    rows: list[tuple[str | None, ...]] = [
        tuple(transition(before, after, name) for name in columns) for before, after in store.sample
    ]
    return Cells(columns, rows, store.rows)
