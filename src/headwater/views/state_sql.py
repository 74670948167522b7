"""Questions in SQL about state that was read, answered by DuckDB over Arrow.

The table is ``state``: the fields of key and value are its columns, a name that repeats has a suffix. ``key.x`` and
``value.x`` mean the field x of the one or the other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from headwater.core.errors import UsageProblem
from headwater.statefiles.buffers import numbers
from headwater.statefiles.reader import StateAnswer

_ROW = "__headwater_row"
# Either a quoted text, which stays as it is, or a name with what it is a part of.
_TOKENS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|(?<![\w."])(window|key|value)\s*\.\s*(\w+)|(?<![\w."])window(?![\w"(])""", re.I
)


def where(answer: StateAnswer, condition: str) -> StateAnswer:
    """The rows for which a condition holds."""
    flat = answer.flat()
    numbered = flat.append_column(_ROW, numbers(np.arange(flat.num_rows)))
    question = f"select {_ROW} from state where ({_plain(answer, condition)}) order by {_ROW}"  # noqa: S608  it is the user's own
    chosen = _ask(numbered, question, condition)[_ROW]
    return answer.with_table(answer.table.take(chosen.combine_chunks()))


def holds(answer: StateAnswer, condition: str) -> bool:
    """Whether a condition holds for any row."""
    question = f"select 1 from state where ({_plain(answer, condition)}) limit 1"  # noqa: S608  it is the user's own
    return bool(_ask(answer.flat(), question, condition).num_rows)


def asks_about_all(condition: str) -> bool:
    """Whether a condition looks at more than the row that it is asked of."""
    return re.search(r"\b(select|over)\b", _TOKENS.sub(" ", condition), re.IGNORECASE) is not None


def sql(answer: StateAnswer, question: str) -> pa.Table:
    """The answer to a whole question, such as ``select browser, sum(count) from state group by 1``."""
    return _ask(answer.flat(), _plain(answer, question), question)


def _plain(answer: StateAnswer, text: str) -> str:
    """``key.x`` as the column that it is; ``window``, which SQL keeps for itself, in quotes."""
    columns = _columns(answer)

    def known(found: re.Match[str]) -> str:
        if found[1] is None:
            return '"window"' if found[0].lower() == "window" and "window" in columns["flat"] else found[0]
        if found[1].lower() == "window":
            return f'"window".{found[2]}' if "window" in columns["flat"] else found[0]
        meant = columns[found[1].lower()].get(found[2].lower())
        return found[0] if meant is None or found[1].lower() in columns["flat"] else f'"{meant}"'

    return _TOKENS.sub(known, text)


def _columns(answer: StateAnswer) -> dict[str, dict[str, str]]:
    """What each field of key and value is called in the table; of a name that repeats inside one, the first."""
    flat = answer.flat().column_names
    of_key = {
        field.name.lower(): name for field, name in reversed(list(zip(answer.key_type.fields, flat, strict=False)))
    }
    after = flat[len(answer.key_type.fields) :]
    of_value = {
        field.name.lower(): name for field, name in reversed(list(zip(answer.value_type.fields, after, strict=False)))
    }
    return {"key": of_key, "value": of_value, "flat": {name.lower(): name for name in flat}}


def _ask(table: pa.Table, question: str, shown: str) -> pa.Table:
    import duckdb  # noqa: PLC0415  most questions need none

    connection = duckdb.connect()
    try:
        with _without_pandas():
            connection.register("state", _for_duckdb(table))
            found = connection.sql(question).to_arrow_table()
        return _in_utc(found) if any(_has_moments(field.type) for field in table.schema) else found
    except AttributeError:
        raise UsageProblem("bad-sql", "this SQL gives no rows", evidence={"asked": shown}) from None
    except duckdb.Error as error:
        columns = [name for name in table.column_names if name != _ROW]
        raise UsageProblem(
            "bad-sql",
            "this is no SQL that DuckDB can answer",
            evidence={"asked": shown, "DuckDB": str(error).splitlines()[0], "columns of state": ", ".join(columns)},
        ) from None
    finally:
        connection.close()


def _for_duckdb(table: pa.Table) -> pa.Table:
    """Moments as plain timestamps in UTC, and columns without a type as text.

    DuckDB works on moments with a zone through an extension that it would have to fetch.
    """
    kinds = [pa.string() if pa.types.is_null(field.type) else _without_zone(field.type) for field in table.schema]
    return table.cast(pa.schema([field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]))


def _in_utc(table: pa.Table) -> pa.Table:
    """Plain timestamps as moments again: the state that was asked about has them."""
    kinds = [
        pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) and field.type.tz is None else field.type
        for field in table.schema
    ]
    fields = [field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]
    return table.cast(pa.schema(fields), safe=False)


def _has_moments(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(_has_moments(kind.field(number).type) for number in range(kind.num_fields))


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
    """DuckDB imports pandas to see whether it was given a data frame; that takes longer than most questions do."""
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["pandas"]
