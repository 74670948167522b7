"""State, differences and key histories as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.buffers import one_array
from headwater.statefiles.columns import PARTITION
from headwater.statefiles.sqltypes import SqlType
from headwater.views.state_json import json_object, json_texts
from headwater.views.state_table import in_standard_units, sql_type_of

if TYPE_CHECKING:
    from headwater.timemachine.diff import StateDiff
    from headwater.timemachine.key_history import KeyHistory

_ROWS_AT_ONCE = 100_000
_INT, _LONG, _STRING = (sql_type_of(kind) for kind in (pa.int32(), pa.int64(), pa.string()))

Columns = list[tuple[str, SqlType, pa.Array | pa.ChunkedArray]]


def state_lines(answer: StateAnswer) -> Iterator[str]:
    """Yield ``{"operator_id":0,"store":"default","var":null,"partition_id":0,"key":{…},"value":{…}}``, many lines at once."""
    keyed = answer.keyed()
    columns: Columns = [
        (PARTITION, _INT, keyed[PARTITION]),
        ("key", answer.types.fields[0].type, keyed["key"]),
        ("value", answer.value_type, keyed["value"]),
    ]
    yield from _lines(f'{{{_store_fields(answer)},"var":{json.dumps(answer.var)},', columns)


def diff_lines(diff: StateDiff) -> Iterator[str]:
    """Yield ``{"operator_id":0,"store":"default","change":"added","key":{…},"before":null,"after":{…}}``."""
    value_type = diff.answer.value_type
    values: Columns = [("before", value_type, diff.before), ("after", value_type, diff.after)]
    columns: Columns = [("change", _STRING, diff.change), _key_column(diff), *values]
    yield from _lines(f"{{{_store_and_var_fields(diff.answer)},", columns)


def history_lines(history: KeyHistory, *, alone: bool) -> Iterator[str]:
    """Yield ``{"batch_id":3,"key":{…},"value":{…}|null}``, with operator and store unless the history is the only one."""
    value: Columns = [("value", history.answer.value_type, history.value)]
    columns: Columns = [("batch_id", _LONG, history.batch_id), _key_column(history), *value]
    yield from _lines("{" if alone else f"{{{_store_and_var_fields(history.answer)},", columns)


def table_lines(table: pa.Table) -> Iterator[str]:
    """Yield the rows of a table that comes from SQL, one object each."""
    columns: Columns = [
        (name, sql_type_of(column.type), in_standard_units(column))
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    yield from _lines("{", columns)


def _key_column(found: StateDiff | KeyHistory) -> tuple[str, SqlType, pa.Array]:
    return "key", found.answer.types.fields[0].type, found.key


def _store_fields(answer: StateAnswer) -> str:
    return f'"operator_id":{answer.operator_id},"store":{json.dumps(answer.store)}'


def _store_and_var_fields(answer: StateAnswer) -> str:
    var = "" if answer.var is None else f',"var":{json.dumps(answer.var)}'
    return _store_fields(answer) + var


def _lines(start: str, columns: Columns) -> Iterator[str]:
    """Yield an object for each row, whose first fields are in ``start``."""
    rows = len(columns[0][2])
    prefix = start.encode("utf-8")
    for first in range(0, rows, _ROWS_AT_ONCE):
        texts = [json_texts(kind, _part(values, first)) for _, kind, values in columns]
        objects = json_object([name for name, _, _ in columns], texts)
        # Strings in a state need not be valid UTF-8: Spark casts any bytes to a string.
        lines = b"\n".join([prefix + line[1:] for line in objects.cast(pa.binary()).to_pylist()])
        yield lines.decode("utf-8", "replace")


def _part(values: pa.Array | pa.ChunkedArray, first: int) -> pa.Array:
    part = values.slice(first, _ROWS_AT_ONCE)
    return one_array(part) if isinstance(part, pa.ChunkedArray) else part
