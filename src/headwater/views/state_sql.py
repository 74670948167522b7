"""SQL on state, run by DuckDB over Arrow.

The table is ``state``. Its columns are the fields of key and value; a repeated name has a suffix. ``key.x`` and
``value.x`` name the field x of the key or of the value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.core.errors import UsageProblem
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.buffers import Ints, Mask, as_mask, as_numbers, numbers, one_array

_ROW, _GROUP = "__headwater_row", "__headwater_group"
_ROWS_AT_ONCE = 100_000
_CHANGED = "__headwater_changed_"
Columns = dict[str, dict[str, str]]
"""The column names of the fields of ``key`` and ``value``, and of all columns (``flat``), by lower-case name."""
# A quoted text, which is left as it is; a field of window, key or value; or the word window.
_TOKENS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|(?<![\w."])(window|key|value)\s*\.\s*(\w+)|(?<![\w."])window(?![\w"(])""", re.I
)


def where(answer: StateAnswer, condition: str) -> StateAnswer:
    """Return the rows that meet a condition."""
    chosen = _matching_rows(answer.flat(), _resolve_names(_columns(answer), condition), condition)
    return answer.with_table(answer.table.take(chosen))


def where_in_table(table: pa.Table, condition: str, columns: Columns | None = None) -> pa.Table:
    """Return the rows of a table, such as that of a job's ``state_view``, that meet a condition.

    ``columns`` are the names of the fields of key and value, if the table has both.
    """
    names = _table_columns(table) if columns is None else columns
    return table.take(_matching_rows(table, _resolve_names(names, condition), condition))


def _matching_rows(table: pa.Table, condition: str, shown: str) -> pa.Array:
    numbered = table.append_column(_ROW, numbers(np.arange(table.num_rows)))
    query = f"select {_ROW} from state where ({condition}) order by {_ROW}"  # noqa: S608  the user's own SQL
    return _run(numbered, query, shown)[_ROW].combine_chunks()


def holds(answer: StateAnswer, condition: str) -> bool:
    """Return whether any row meets a condition."""
    query = f"select 1 from state where ({_resolve_names(_columns(answer), condition)}) limit 1"  # noqa: S608  the user's own SQL
    return bool(_run(answer.flat(), query, condition).num_rows)


def needs_all_rows(condition: str) -> bool:
    """Return whether a condition on a row also depends on other rows."""
    return re.search(r"\b(select|over)\b", _TOKENS.sub(" ", condition), re.IGNORECASE) is not None


def sql(answer: StateAnswer, query: str) -> pa.Table:
    """Return the result of a query such as ``select browser, sum(count) from state group by 1``."""
    return _run(answer.flat(), _resolve_names(_columns(answer), query), query)


def sql_on_stream(
    first: StateAnswer, tables: Iterable[pa.Table], query: str, *, folder: Path, memory: str, once: bool
) -> Iterator[pa.Table]:
    """Yield the result of a query on a state that comes in flat tables, of which ``first`` is the first.

    DuckDB uses so much memory and then the folder. A query that may read the table more than ``once`` runs on a copy in
    the folder, because a stream can be read only once.
    """
    import duckdb  # noqa: PLC0415  slow to import, and rarely needed

    example = _for_duckdb(first.flat().slice(0, 0))
    batches = (batch for table in tables for batch in _for_duckdb(table).to_batches())
    zoned = any(_has_zoned_times(field.type) for field in first.flat().schema)
    settings = {"memory_limit": memory, "temp_directory": str(folder / "spilled")}
    settings |= {} if once else {"preserve_insertion_order": "false"}  # a copy in order needs much more memory
    connection = duckdb.connect(":memory:" if once else str(folder / "state.duckdb"), config=settings)
    try:
        with _without_pandas():
            connection.register("state", pa.RecordBatchReader.from_batches(example.schema, batches))
            if not once:
                connection.execute("create table copied as from state")
                connection.unregister("state")
                connection.execute("alter table copied rename to state")
            relation = connection.sql(_resolve_names(_columns(first), query))
            if relation is None:
                raise _no_rows(query)
            found = relation.to_arrow_reader(_ROWS_AT_ONCE)
        yield from (_in_utc(one) if zoned else one for one in _tables(found))
    except duckdb.Error as error:
        raise _cannot_run(query, error, example.column_names) from None
    finally:
        connection.close()


def _tables(found: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the batches of a result as tables, at least one."""
    yield pa.Table.from_batches([], found.schema)
    for batch in found:
        yield pa.Table.from_batches([batch])


def sql_on_table(table: pa.Table, query: str) -> pa.Table:
    """Return the result of a query on a table, such as that of a job's ``state_view``."""
    return _run(table, _resolve_names(_table_columns(table), query), query)


def computed(table: pa.Table, expressions: Mapping[str, str], columns: Columns) -> pa.Table:
    """Return the value of each expression for each row of a table, as columns with the names of the expressions."""
    shown = ", ".join(f"{name} = {text}" for name, text in expressions.items())
    listed = ", ".join(f'({_resolve_names(columns, text)}) as "{name}"' for name, text in expressions.items())
    numbered = table.append_column(_ROW, numbers(np.arange(table.num_rows)))
    found = _run(numbered, f"select {_ROW}, {listed} from state order by {_ROW}", shown)  # noqa: S608  the user's own SQL
    if found.num_rows != table.num_rows:
        raise UsageProblem("bad-sql", "the SQL of a field has to give one value for each row", evidence={"SQL": shown})
    return found.drop_columns([_ROW])


def aggregated(table: pa.Table, groups: Ints, expressions: Mapping[str, str], columns: Columns) -> pa.Table:
    """Return the value of each aggregate for each group of rows. Groups are numbered from 0, one number for each row."""
    shown = ", ".join(f"{name} = {text}" for name, text in expressions.items())
    listed = ", ".join(f'({_resolve_names(columns, text)}) as "{name}"' for name, text in expressions.items())
    numbered = table.append_column(_GROUP, numbers(groups))
    query = f"select {_GROUP}, {listed} from state group by {_GROUP} order by {_GROUP}"  # noqa: S608  the user's own SQL
    return _run(numbered, query, shown).drop_columns([_GROUP])


def split_expressions(text: str) -> tuple[str, ...]:
    """Return the expressions of a list, which are separated by commas outside of brackets and quotes."""
    found, depth, quote = [""], 0, ""
    for one in text:
        if quote:
            quote = "" if one == quote else quote
        elif one in "'\"":
            quote = one
        elif one in "([{":
            depth += 1
        elif one in ")]}":
            depth -= 1
        elif one == "," and depth == 0:
            found.append("")
            continue
        found[-1] += one
    return tuple(expression.strip() for expression in found)


@dataclass(frozen=True)
class EditedRows:
    """The rows that a statement has changed or added, with the row that each comes from (0 for new ones)."""

    rows: pa.Table
    row: Ints
    is_new: Mask
    changed: dict[str, Mask]
    """For each column, in which rows its value differs from the old one; all columns of a new row do."""
    removed: Ints


def edited(table: pa.Table, statement: str, columns: Columns) -> EditedRows:
    """Run an ``update``, ``delete`` or ``insert`` on a copy of a table. Return what it changed."""
    import duckdb  # noqa: PLC0415  slow to import, and rarely needed

    names = table.column_names
    differs = [f's."{name}" is distinct from o."{name}"' for name in names]
    flags = ", ".join(f'{test} as "{_CHANGED}{number}"' for number, test in enumerate(differs))
    listed = ", ".join(f'"{name}"' for name in names)
    queries = (
        f"select s.*, {flags} from state s left join original o on s.{_ROW} = o.{_ROW} "  # noqa: S608  the user's own SQL
        f"where s.{_ROW} is null or {' or '.join(differs)}",
        f"select {_ROW} from original where {_ROW} not in (select {_ROW} from state where {_ROW} is not null)",  # noqa: S608
    )
    connection = duckdb.connect()
    try:
        with _without_pandas():
            connection.register("original", _for_duckdb(table.append_column(_ROW, numbers(np.arange(table.num_rows)))))
            # The number of a row is last and hidden from "insert into state values (…)" by a default.
            connection.execute(f"create table state as select {listed}, {_ROW} from original")  # noqa: S608
            connection.execute(_resolve_names(columns, statement))
            rows, removed = (connection.sql(query).to_arrow_table() for query in queries)
    except duckdb.Error as error:
        raise _cannot_run(statement, error, names) from None
    finally:
        connection.close()
    is_new = as_mask(one_array(rows[_ROW]).is_null())
    row = np.where(is_new, 0, as_numbers(one_array(rows[_ROW]).fill_null(0), "<i8"))
    changed = {
        name: as_mask(one_array(rows[f"{_CHANGED}{number}"]).fill_null(True)) | is_new
        for number, name in enumerate(names)
    }
    return EditedRows(rows.select(names), row, is_new, changed, as_numbers(one_array(removed[_ROW]), "<i8"))


def _resolve_names(columns: Columns, text: str) -> str:
    """Replace ``key.x`` by the name of its column, and quote ``window``, which is a reserved word in SQL."""

    def resolve(found: re.Match[str]) -> str:
        if found[1] is None:
            return '"window"' if found[0].lower() == "window" and "window" in columns["flat"] else found[0]
        if found[1].lower() == "window":
            return f'"window".{found[2]}' if "window" in columns["flat"] else found[0]
        column = columns[found[1].lower()].get(found[2].lower())
        return found[0] if column is None or found[1].lower() in columns["flat"] else f'"{column}"'

    return _TOKENS.sub(resolve, text)


def _table_columns(table: pa.Table) -> Columns:
    return {"key": {}, "value": {}, "flat": {name.lower(): name for name in table.column_names}}


def _columns(answer: StateAnswer) -> Columns:
    """Return the column names of the fields of key and value; of a name that repeats within one of them, the first."""
    flat = answer.flat().column_names
    of_key = {
        field.name.lower(): name for field, name in reversed(list(zip(answer.key_type.fields, flat, strict=False)))
    }
    after = flat[len(answer.key_type.fields) :]
    of_value = {
        field.name.lower(): name for field, name in reversed(list(zip(answer.value_type.fields, after, strict=False)))
    }
    return {"key": of_key, "value": of_value, "flat": {name.lower(): name for name in flat}}


def _run(table: pa.Table, query: str, shown: str) -> pa.Table:
    """Run a query on the table ``state``. ``shown`` is the part of it that the user wrote."""
    import duckdb  # noqa: PLC0415  slow to import, and rarely needed

    connection = duckdb.connect()
    try:
        with _without_pandas():
            connection.register("state", _for_duckdb(table))
            found = connection.sql(query).to_arrow_table()
        return _in_utc(found) if any(_has_zoned_times(field.type) for field in table.schema) else found
    except AttributeError:
        raise _no_rows(shown) from None
    except duckdb.Error as error:
        raise _cannot_run(shown, error, table.column_names) from None
    finally:
        connection.close()


def _no_rows(shown: str) -> UsageProblem:
    return UsageProblem("bad-sql", "this SQL statement returns no rows", evidence={"SQL": shown})


def _cannot_run(shown: str, error: Exception, columns: Iterable[str]) -> UsageProblem:
    known = ", ".join(name for name in columns if name not in (_ROW, _GROUP))
    return UsageProblem(
        "bad-sql",
        "DuckDB cannot run this SQL",
        evidence={"SQL": shown, "DuckDB": str(error).splitlines()[0], "columns of state": known},
    )


def _for_duckdb(table: pa.Table) -> pa.Table:
    """Return a table with timestamps in UTC without a zone, and columns without a type as text.

    For timestamps with a zone, DuckDB needs an extension that it would have to download.
    """
    kinds = [pa.string() if pa.types.is_null(field.type) else _without_zone(field.type) for field in table.schema]
    return table.cast(pa.schema([field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]))


def _in_utc(table: pa.Table) -> pa.Table:
    """Return a result with its timestamps in the zone UTC again, as in the state."""
    kinds = [
        pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) and field.type.tz is None else field.type
        for field in table.schema
    ]
    fields = [field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]
    return table.cast(pa.schema(fields), safe=False)


def _has_zoned_times(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(_has_zoned_times(kind.field(number).type) for number in range(kind.num_fields))


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_zone(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_zone(kind.key_type), _without_zone(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_without_zone(kind.value_type))
    return kind


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Hide pandas from DuckDB, which imports it to detect data frames; that takes longer than most queries."""
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["pandas"]
