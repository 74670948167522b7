"""A planned migration as a value: what becomes of each store, and the batch that rewrites it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.checkpoint.filetree import FileTree
from headwater.core.text import count
from headwater.migration.field_plan import DroppedField, FieldPlan, StorePlan
from headwater.timemachine.edit_plan import AddsBatch, ExtraBatch

if TYPE_CHECKING:
    from headwater.migration.rewriting import Pair


@dataclass(frozen=True)
class StoreMigration:
    """What becomes of one store or variable, with the number of its rows and some of them before and after."""

    label: str
    rows: int
    fields: tuple[FieldPlan, ...]
    dropped: tuple[DroppedField, ...]
    sample: tuple[Pair, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()
    """The fields of a changed key, each with its expression."""
    merge: Mapping[str, str] = field(default_factory=dict)
    """How the fields of rows that end up with the same key are merged, and how many rows became part of another one."""
    merged: int = 0

    @classmethod
    def of(cls, plan: StorePlan, rows: int, sample: tuple[Pair, ...]) -> StoreMigration:
        keys = () if plan.keys is None else tuple(zip(plan.new.schema.key.names, plan.keys, strict=True))
        return cls(plan.new.label, rows, tuple(plan.fields), tuple(plan.all_dropped), sample, keys)

    @property
    def changed(self) -> list[FieldPlan]:
        """The fields that are not simply kept."""
        return [one for one in self.fields if one.origin != "kept"]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "state": self.label,
            "rows": self.rows,
            "keys": dict(self.keys) or None,
            **({"merge": dict(self.merge), "merged_rows": self.merged} if self.merge else {}),
            "fields": [
                {
                    "name": one.name,
                    "type": one.new_type,
                    "from": one.origin,
                    "old_type": one.old_type or None,
                    "expression": one.expression,
                    "aggregate": one.aggregate,
                }
                for one in self.fields
            ],
            "dropped": [{"name": one.name, "type": one.type, "aggregate": one.aggregate} for one in self.dropped],
            "sample": [{"before": before, "after": after} for before, after in self.sample],
        }


def effects(stores: tuple[StoreMigration, ...], batch: int) -> tuple[str, ...]:
    """Return in what the continued stream differs from one that had run with the new code from the start."""
    found: list[str] = []
    for store in stores:
        begun: dict[str, None] = {}
        for one in store.fields:
            if one.origin == "initial":
                begun[one.aggregate or one.name] = None
            elif one.origin == "null":
                found.append(f"{one.name} is null in {count(store.rows, 'row')} of the state")
            elif one.origin == "given":
                found.append(f"{one.name} begins with {one.expression} in {count(store.rows, 'row')} of the state")
        for aggregate in begun:
            keys = "the key" if store.rows == 1 else f"the {store.rows:,} keys"
            found.append(f"{aggregate} covers only records from batch {batch + 1} on, for {keys} in the state")
    return tuple(found)


@dataclass(frozen=True)
class MigrationPlan(AddsBatch):
    """A migration that was planned: ``batch`` is what ``apply`` adds, the rest is for people to judge it by.

    ``effects`` are what the continued stream differs in from a run of the new code over all records.
    """

    files: FileTree = field(repr=False, compare=False)
    sink_files: FileTree | None = field(repr=False, compare=False)
    job: str
    stores: tuple[StoreMigration, ...]
    batch: ExtraBatch
    effects: tuple[str, ...]
    reason: str | None
    warnings: tuple[str, ...]
    signs_of_life: tuple[str, ...]
    sources: tuple[Mapping[str, str | int | None], ...] = ()
    """The old and new places of all sources, if any changes."""
    operators: tuple[Mapping[str, str | int | None], ...] = ()
    """The old and new numbers of all stateful operators, if any changes."""

    @property
    def rows(self) -> int:
        """The number of rows that are rewritten."""
        return sum(store.rows for store in self.stores)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "verb": self.batch.change.verb,
            "batch_id": self.batch_id,
            "job": self.job,
            "rows": self.rows,
            "stores": [store.as_dict() for store in self.stores],
            "sources": [dict(one) for one in self.sources],
            "operators": [dict(one) for one in self.operators],
            "effects": list(self.effects),
            "written": self.written,
            "reason": self.reason,
            "warnings": list(self.warnings),
            "signs_of_life": list(self.signs_of_life),
        }
