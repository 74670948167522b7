"""State, differences and key histories as rows of short texts, for the terminal and for notebooks."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.sqltypes import distinct
from headwater.timemachine.diff import ADDED, CHANGED, REMOVED, StateDiff
from headwater.timemachine.key_history import KeyHistory
from headwater.views.state_table import (
    FlatColumns,
    cell_texts,
    first_rows,
    in_standard_units,
    sort_order,
    sql_type_of,
)

SHOWN_ROWS = 50
NULL = "null"
_ABSENT = "-"
_SIGNS = {ADDED: "+", REMOVED: "-", CHANGED: "~"}


@dataclass(frozen=True)
class Cells:
    """The first rows of a table as texts. ``total`` is the number of rows that the table has."""

    columns: list[str]
    rows: list[tuple[str | None, ...]]
    total: int

    @property
    def omitted(self) -> int:
        """The number of rows that are not shown."""
        return self.total - len(self.rows)


def state_cells(answer: StateAnswer, most: int | None = SHOWN_ROWS) -> Cells:
    """Return the fields of key and value, sorted by key; ``most`` None for all rows."""
    rows = answer.keyed()
    keys = FlatColumns.of_fields(answer.key_type, in_standard_units(rows["key"]))
    columns = keys + FlatColumns.of_fields(answer.value_type, in_standard_units(rows["value"]))
    # The elements of a list keep their own order.
    order = sort_order((keys if "list_element" in answer.table.column_names else columns).arrays)
    shown = columns.with_times().first_rows(_shown(rows.num_rows, most), order)
    texts = [[NULL if text is None else text for text in column] for column in shown.cell_texts()]
    return Cells(distinct(columns.names), list(zip(*texts, strict=True)), rows.num_rows)


def diff_cells(found: StateDiff, most: int | None = SHOWN_ROWS) -> Cells:
    """Return a sign, the key, and each value as ``old → new`` where it differs, sorted by key."""
    keys = FlatColumns.of_fields(found.answer.key_type, found.key)
    before, after = (FlatColumns.of_fields(found.answer.value_type, side) for side in (found.before, found.after))
    order = sort_order(keys.arrays)
    shown = _shown(len(found), most)
    signs = [_SIGNS[change] for change in first_rows(found.change, shown, order).to_pylist()]
    key_texts, old_texts, new_texts = (
        columns.first_rows(shown, order).cell_texts() for columns in (keys, before, after)
    )
    values = [
        [_transition(*pair) for pair in zip(old, new, strict=True)]
        for old, new in zip(old_texts, new_texts, strict=True)
    ]
    names = ["", *distinct([*keys.names, *before.names])]
    return Cells(names, list(zip(signs, *key_texts, *values, strict=True)), len(found))


def diff_counts(found: StateDiff) -> str:
    """Return the number of added, removed and changed keys: ``+3 -0 ~1``."""
    changes = found.change.to_pylist()
    return " ".join(f"{sign}{changes.count(change)}" for change, sign in _SIGNS.items())


def history_cells(found: KeyHistory, most: int | None = None) -> Cells:
    """Return a row per batch and key; a dash for a batch after which the key was not there."""
    shown = _shown(len(found), most)
    keys = FlatColumns.of_fields(found.answer.key_type, found.key.slice(0, shown))
    values = FlatColumns.of_fields(found.answer.value_type, found.value.slice(0, shown))
    present = found.value.slice(0, shown).is_valid().to_pylist()
    value_texts = [
        [text if is_present else _ABSENT for text, is_present in zip(column, present, strict=True)]
        for column in values.cell_texts()
    ]
    batches = [str(number) for number in found.batch_id.slice(0, shown).to_pylist()]
    names = ["batch", *distinct([*keys.names, *values.names])]
    return Cells(names, list(zip(batches, *keys.cell_texts(), *value_texts, strict=True)), len(found))


def table_cells(table: pa.Table, most: int | None = SHOWN_ROWS) -> Cells:
    """Return the columns of a table that comes from SQL or from a job's ``state_view``."""
    shown = table.slice(0, _shown(table.num_rows, most))
    columns = [in_standard_units(column) for column in shown.columns]
    texts = [cell_texts(sql_type_of(column.type), column) for column in columns]
    return Cells(table.column_names, list(zip(*texts, strict=True)), table.num_rows)


def _shown(rows: int, most: int | None) -> int:
    return rows if most is None else min(rows, most)


def _transition(old: str | None, new: str | None) -> str | None:
    return new if old == new or old is None else old if new is None else f"{old} → {new}"
