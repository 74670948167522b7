"""State as cells of text, for tables and csv."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.statefiles import buffers
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Field, Interval, Map, SqlType, Struct, distinct
from headwater.views.state_json import json_texts

_SORTED_UP_TO = 20_000
# Microseconds in the unit of Spark's own columns of times that are plain numbers.
_TIMES = {
    "expiration_timestamp_ms": 1000,
    "expirationMs": 1000,
    "ttlExpirationMs": 1000,
    "timeoutTimestamp": 1000,
    "expiresAtMicros": 1,
}
_BARE = (
    Atomic("string"),
    Atomic("timestamp"),
    Atomic("timestamp_ntz"),
    Atomic("date"),
    Atomic("time"),
    Atomic("interval"),
)


def spread(
    names: list[str], types: list[SqlType], columns: list[pa.Array]
) -> tuple[list[str], list[SqlType], list[pa.Array]]:
    """Structs as a column for each field, ``window.start``; names that repeat get a suffix."""
    found: list[tuple[str, SqlType, pa.Array]] = []
    for name, kind, column in zip(names, types, columns, strict=True):
        found += _leaves(name, kind, column)
    return distinct([held[0] for held in found]), [held[1] for held in found], [held[2] for held in found]


def _leaves(name: str, kind: SqlType, column: pa.Array) -> list[tuple[str, SqlType, pa.Array]]:
    if not isinstance(kind, Struct) or not kind.fields:
        return [(name, kind, column)]
    return [
        leaf
        for field, part in zip(kind.fields, column.flatten(), strict=True)
        for leaf in _leaves(f"{name}.{field.name}", field.type, part)
    ]


def fields_of(kind: Struct, column: pa.Array, before: str = "") -> tuple[list[str], list[SqlType], list[pa.Array]]:
    """A struct's own fields side by side, each spread."""
    names = [before + field.name for field in kind.fields]
    return spread(names, [field.type for field in kind.fields], column.flatten())


def readable(names: list[str], types: list[SqlType], columns: list[pa.Array]) -> tuple[list[SqlType], list[pa.Array]]:
    """Numbers that Spark keeps times in, under its own names, as the times that they are; -1 is none."""
    kinds, shown = [], []
    for name, kind, column in zip(names, types, columns, strict=True):
        per_micro = _TIMES.get(name.rpartition(".")[2]) if kind == Atomic("long") else None
        if per_micro is None:
            kinds.append(kind)
            shown.append(column)
        else:
            kinds.append(Atomic("timestamp"))
            held = buffers.as_numbers(column, "<i8")
            valid = buffers.as_mask(column.is_valid()) & (held >= 0)
            shown.append(buffers.fixed(pa.timestamp("us", "UTC"), np.where(valid, held, 0) * per_micro, valid))
    return kinds, shown


def cells(kind: SqlType, column: pa.Array) -> pa.Array:
    """Each value as the text that a person reads: no quotes around texts and times; null stays null."""
    if kind == Atomic("string"):
        return column
    texts = json_texts(kind, column)
    if kind in _BARE or isinstance(kind, Interval):
        texts = pc.replace_substring_regex(texts, r'^"|"$', "")
    return pc.if_else(column.is_valid(), texts, buffers.text(None))


def cell_texts(kind: SqlType, column: pa.Array) -> list[str | None]:
    """The same as Python texts; bytes that are no UTF-8 are shown as marks of that."""
    held = cells(kind, column).cast(pa.binary()).to_pylist()
    return [None if text is None else text.decode("utf-8", "replace") for text in held]


def in_order(columns: list[pa.Array]) -> pa.Array | None:
    """The order of rows by these columns, where there are few enough to be worth it; None to leave them as they are."""
    if not columns or len(columns[0]) > _SORTED_UP_TO:
        return None
    table = pa.table({str(number): column for number, column in enumerate(columns) if _sortable(column.type)})
    return pc.sort_indices(table, [(name, "ascending") for name in table.column_names]) if table.num_columns else None


def _sortable(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind))


def sql_type_of(kind: pa.DataType) -> SqlType:
    """The Spark type that is nearest to an Arrow type, for columns that SQL made."""
    simple = {
        pa.bool_(): "boolean",
        pa.int8(): "byte",
        pa.int16(): "short",
        pa.int32(): "integer",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.null(): "void",
        pa.date32(): "date",
        pa.month_day_nano_interval(): "interval",
    }
    if kind in simple:
        return Atomic(simple[kind])
    if pa.types.is_integer(kind):
        return Atomic("long")
    if pa.types.is_timestamp(kind):
        return Atomic("timestamp" if kind.tz else "timestamp_ntz")
    if pa.types.is_time(kind):
        return Atomic("time")
    if pa.types.is_duration(kind):
        return Interval(months=False, units="day to second")
    if pa.types.is_decimal(kind):
        return Decimal(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return Map(sql_type_of(kind.key_type), sql_type_of(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Array(sql_type_of(kind.value_type))
    if pa.types.is_struct(kind):
        return Struct(tuple(Field(field.name, sql_type_of(field.type)) for field in kind))
    return Atomic("binary" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "string")


def settled(column: pa.ChunkedArray) -> pa.Array:
    """One array in the units that the rest of this room knows: microseconds, and nanoseconds within a day."""
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_timestamp(whole.type) and whole.type.unit != "us":
        return whole.cast(pa.timestamp("us", whole.type.tz), safe=False)
    if pa.types.is_time(whole.type):
        return whole.cast(pa.time64("ns"))
    return whole


def csv_text(table: pa.Table) -> str:
    """Times as ISO 8601, structs as a column for each field, other nested values as JSON."""
    from pyarrow import csv  # noqa: PLC0415  few ask for it

    wholes = [settled(column) for column in table.columns]
    names, kinds, parts = spread(table.column_names, [sql_type_of(column.type) for column in wholes], wholes)
    columns = [part if _plain(part.type) else cells(kind, part) for kind, part in zip(kinds, parts, strict=True)]
    buffer = io.BytesIO()
    csv.write_csv(pa.table(columns, names=names), buffer, csv.WriteOptions(quoting_style="needed"))
    return buffer.getvalue().decode("utf-8")


def write_parquet(table: pa.Table, path: Path) -> None:
    """Types that Parquet lacks, intervals of months and columns without a type, as text."""
    from pyarrow import parquet  # noqa: PLC0415  few ask for it

    columns = [
        cells(sql_type_of(column.type), settled(column)) if _not_in_parquet(column.type) else column
        for column in table.columns
    ]
    parquet.write_table(pa.table(columns, names=table.column_names), path)


def _plain(kind: pa.DataType) -> bool:
    simple = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return any(fits(kind) for fits in simple)


def _not_in_parquet(kind: pa.DataType) -> bool:
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    odd = pa.types.is_interval(kind) or pa.types.is_duration(kind) or pa.types.is_null(kind)
    return bool(odd) or any(_not_in_parquet(part) for part in inner)
