"""State, differences and histories as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.statefiles.reader import PARTITION, StateAnswer
from headwater.statefiles.sqltypes import SqlType
from headwater.views.state_json import json_object, json_texts
from headwater.views.state_table import settled, sql_type_of

if TYPE_CHECKING:
    from headwater.timemachine.diff import StateDiff
    from headwater.timemachine.key_history import KeyHistory

_ROWS_AT_ONCE = 100_000


def state_lines(answer: StateAnswer) -> Iterator[str]:
    """``{"operator_id":0,"store":"default","var":null,"partition_id":0,"key":{…},"value":{…}}``, many lines at once."""
    columns: list[tuple[str, SqlType, pa.ChunkedArray]] = []
    keyed = answer.keyed()
    columns.append((PARTITION, sql_type_of(pa.int32()), keyed[PARTITION]))
    columns.append(("key", answer.types.fields[0].type, keyed["key"]))
    columns.append(("value", answer.value_type, keyed["value"]))
    yield from _lines(_about(answer) + f',"var":{json.dumps(answer.var)},', columns)


def diff_lines(diff: StateDiff) -> Iterator[str]:
    """``{"operator_id":0,"store":"default","change":"added","key":{…},"before":null,"after":{…}}``."""
    answer = diff.answer
    var = "" if answer.var is None else f',"var":{json.dumps(answer.var)}'
    columns = [
        ("change", sql_type_of(pa.string()), diff.change),
        ("key", answer.types.fields[0].type, diff.key),
        ("before", answer.value_type, diff.before),
        ("after", answer.value_type, diff.after),
    ]
    yield from _lines(_about(answer) + var + ",", columns)


def history_lines(history: KeyHistory, *, alone: bool) -> Iterator[str]:
    """``{"batch_id":3,"key":{…},"value":{…}|null}``; with what it is of, unless there is only one."""
    answer = history.answer
    var = "" if answer.var is None else f',"var":{json.dumps(answer.var)}'
    columns = [
        ("batch_id", sql_type_of(pa.int64()), history.batch_id),
        ("key", answer.types.fields[0].type, history.key),
        ("value", answer.value_type, history.value),
    ]
    yield from _lines("{" if alone else _about(answer) + var + ",", columns)


def table_lines(table: pa.Table) -> Iterator[str]:
    """A table that SQL made, an object a row."""
    columns = [
        (name, sql_type_of(column.type), settled(column))
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    yield from _lines("{", columns)


def _about(answer: StateAnswer) -> str:
    return f'{{"operator_id":{answer.operator_id},"store":{json.dumps(answer.store)}'


def _lines(beginning: str, columns: list[tuple[str, SqlType, pa.Array]]) -> Iterator[str]:
    count = len(columns[0][2])
    for start in range(0, count, _ROWS_AT_ONCE):
        texts = [json_texts(kind, _part(values, start)) for _, kind, values in columns]
        objects = json_object([name for name, _, _ in columns], texts)
        # A text in a state need not be valid UTF-8: Spark casts any bytes to a string.
        first = beginning.encode("utf-8")
        lines = b"\n".join([first + line[1:] for line in objects.cast(pa.binary()).to_pylist()])
        yield lines.decode("utf-8", "replace")


def _part(values: pa.Array | pa.ChunkedArray, start: int) -> pa.Array:
    part = values.slice(start, _ROWS_AT_ONCE)
    if isinstance(part, pa.ChunkedArray):
        return part.combine_chunks() if part.num_chunks != 1 else part.chunk(0)
    return part
