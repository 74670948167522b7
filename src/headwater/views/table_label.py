"""What an Arrow table of state shows, recorded in the table's own metadata.

``Checkpoint.state``, ``diff`` and ``key_history`` return plain ``pyarrow.Table`` objects, so that every function that
takes a table takes them. Such an object has no attributes of its own: the metadata is how a notebook knows what to show.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.sqltypes import Field, Struct
from headwater.timemachine.diff import StateDiff
from headwater.timemachine.key_history import KeyHistory
from headwater.views.state_table import in_standard_units, sql_type_of

_NAME = b"headwater"


@dataclass(frozen=True)
class TableLabel:
    """The origin of a table. ``rows`` is its length when it was labeled; a table that was derived from it may differ."""

    shows: Literal["state", "diff", "history", "view"]
    operator_id: int | None = None
    store: str | None = None
    var: str | None = None
    batches: tuple[int, ...] = ()
    job: str | None = None
    rows: int = 0

    @property
    def place(self) -> str:
        """The operator, and the variable or store, as captions show them."""
        return f"operator {self.operator_id}, " + (f"variable {self.var}" if self.var else f"store {self.store}")

    def attach(self, table: pa.Table) -> pa.Table:
        """Return the table with this label."""
        text = json.dumps(asdict(replace(self, rows=table.num_rows)))
        return table.replace_schema_metadata({**(table.schema.metadata or {}), _NAME: text.encode()})


def label_of(table: pa.Table) -> TableLabel | None:
    """Return the label of a table; None if it has none that can be read."""
    text = (table.schema.metadata or {}).get(_NAME)
    if text is None:
        return None
    try:
        value = json.loads(text)
        return TableLabel(**{**value, "batches": tuple(value["batches"])})
    except (ValueError, TypeError, KeyError):
        return None


def state_table(answer: StateAnswer, batch: int) -> pa.Table:
    """Return the rows of a store or variable as of a batch."""
    return TableLabel("state", answer.operator_id, answer.store, answer.var, (batch,)).attach(answer.table)


def view_table(table: pa.Table, batch: int, job: str) -> pa.Table:
    """Return the rows of a job's ``state_view`` as of a batch."""
    return TableLabel("view", batches=(batch,), job=job).attach(table)


def diff_table(found: StateDiff, a: int, b: int) -> pa.Table:
    """Return the keys that differ: ``change``, ``key``, ``before``, ``after``, ``partition_id``."""
    about = found.answer
    return TableLabel("diff", about.operator_id, about.store, about.var, (a, b)).attach(found.table)


def history_table(found: KeyHistory) -> pa.Table:
    """Return a row per key and batch: ``batch_id``, ``key``, ``value``, ``changed``, ``partition_id``."""
    about = found.answer
    columns = {
        "batch_id": found.batch_id,
        "key": found.key,
        "value": found.value,
        "changed": pa.array(found.changed.tolist(), pa.bool_()),
        "partition_id": found.partition_id,
    }
    batches = tuple(sorted(set(found.batch_id.to_pylist())))
    ends = (batches[0], batches[-1]) if batches else ()
    return TableLabel("history", about.operator_id, about.store, about.var, ends).attach(pa.table(columns))


def answer_of(label: TableLabel, table: pa.Table) -> StateAnswer:
    """Return the rows of a table of state, with the Spark types that are nearest to those of Arrow."""
    return _answer(label, table, *table.column_names)


def diff_of(label: TableLabel, table: pa.Table) -> StateDiff:
    """Return the changes of a table that ``diff_table`` made."""
    values = table.select(["key", "after"]).rename_columns(["key", "value"])
    names = ("change", "key", "before", "after", "partition_id")
    return StateDiff(_answer(label, values, "key", "value"), *(in_standard_units(table[name]) for name in names))


def history_of(label: TableLabel, table: pa.Table) -> KeyHistory:
    """Return the history of a table that ``history_table`` made."""
    batch_id, key, value, partition_id = (
        in_standard_units(table[name]) for name in ("batch_id", "key", "value", "partition_id")
    )
    changed = np.array(table["changed"].to_pylist(), bool)
    return KeyHistory(_answer(label, table, "key", "value"), batch_id, key, value, partition_id, changed)


def _answer(label: TableLabel, table: pa.Table, *columns: str) -> StateAnswer:
    types = Struct(tuple(Field(name, sql_type_of(table.schema.field(name).type)) for name in columns))
    return StateAnswer(label.operator_id or 0, label.store or "", label.var, types, table)
