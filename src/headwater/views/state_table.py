"""State as columns of texts, for tables, and as csv and Parquet files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.statefiles import buffers
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Field, Interval, Map, SqlType, Struct, distinct
from headwater.views.state_json import json_texts

MAX_SORTED_ROWS = 20_000
# Columns in which Spark stores times as numbers, with the microseconds in their unit.
_TIME_COLUMNS = {
    "expiration_timestamp_ms": 1000,
    "expirationMs": 1000,
    "ttlExpirationMs": 1000,
    "timeoutTimestamp": 1000,
    "expiresAtMicros": 1,
}
_SHOWN_WITHOUT_QUOTES = (
    Atomic("string"),
    Atomic("binary"),
    Atomic("timestamp"),
    Atomic("timestamp_ntz"),
    Atomic("date"),
    Atomic("time"),
    Atomic("interval"),
)


@dataclass(frozen=True)
class FlatColumns:
    """Columns in which each struct is replaced by its fields, with names such as ``window.start``."""

    names: list[str]
    types: list[SqlType]
    arrays: list[pa.Array]

    @classmethod
    def of_fields(cls, kind: Struct, column: pa.Array) -> FlatColumns:
        """Return the fields of a struct as columns. A repeated name gets a suffix."""
        arrays = column.flatten() if pa.types.is_struct(column.type) else [column]
        return cls.of([field.name for field in kind.fields], [field.type for field in kind.fields], arrays)

    @classmethod
    def of(cls, names: Sequence[str], types: Sequence[SqlType], arrays: Sequence[pa.Array]) -> FlatColumns:
        """Return columns with their structs replaced. A repeated name gets a suffix."""
        leaves: list[tuple[str, SqlType, pa.Array]] = []
        for name, kind, array in zip(names, types, arrays, strict=True):
            leaves += _leaves(name, kind, array)
        return cls(distinct([leaf[0] for leaf in leaves]), [leaf[1] for leaf in leaves], [leaf[2] for leaf in leaves])

    def __len__(self) -> int:
        return len(self.arrays[0]) if self.arrays else 0

    def __add__(self, other: FlatColumns) -> FlatColumns:
        return FlatColumns(self.names + other.names, self.types + other.types, self.arrays + other.arrays)

    def with_times(self) -> FlatColumns:
        """Return the columns with the times that Spark stores as numbers as timestamps; -1 becomes null."""
        types, arrays = [], []
        for name, kind, array in zip(self.names, self.types, self.arrays, strict=True):
            micros_per_unit = _TIME_COLUMNS.get(name.rpartition(".")[2]) if kind == Atomic("long") else None
            if micros_per_unit is None:
                types.append(kind)
                arrays.append(array)
            else:
                types.append(Atomic("timestamp"))
                values = buffers.as_numbers(array, "<i8")
                valid = buffers.as_mask(array.is_valid()) & (values >= 0)
                micros = np.where(valid, values, 0) * micros_per_unit
                arrays.append(buffers.fixed(pa.timestamp("us", "UTC"), micros, valid))
        return FlatColumns(self.names, types, arrays)

    def first_rows(self, number: int, order: pa.Array | None) -> FlatColumns:
        """Return the first rows in an order, or as they are if there is none."""
        return FlatColumns(self.names, self.types, [first_rows(array, number, order) for array in self.arrays])

    def cell_texts(self) -> list[list[str | None]]:
        """Return the texts of each column; bytes that are not valid UTF-8 are replaced."""
        return [cell_texts(kind, array) for kind, array in zip(self.types, self.arrays, strict=True)]


def _leaves(name: str, kind: SqlType, array: pa.Array) -> list[tuple[str, SqlType, pa.Array]]:
    if not isinstance(kind, Struct) or not kind.fields:
        return [(name, kind, array)]
    return [
        leaf
        for field, part in zip(kind.fields, array.flatten(), strict=True)
        for leaf in _leaves(f"{name}.{field.name}", field.type, part)
    ]


def sort_order(arrays: Sequence[pa.Array]) -> pa.Array | None:
    """Return the indexes that sort rows by these columns; None if there are too many rows, or nothing to sort by."""
    if not arrays or len(arrays[0]) > MAX_SORTED_ROWS:
        return None
    table = pa.table({str(number): array for number, array in enumerate(arrays) if _is_sortable(array.type)})
    return pc.sort_indices(table, [(name, "ascending") for name in table.column_names]) if table.num_columns else None


def _is_sortable(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind))


def first_rows(array: pa.Array, number: int, order: pa.Array | None) -> pa.Array:
    """Return the first values in an order, or as they are if there is none."""
    return array.slice(0, number) if order is None else array.take(order.slice(0, number))


def cells(kind: SqlType, array: pa.Array) -> pa.Array:
    """Return each value as text, without quotes around strings and times; a null stays null."""
    if kind == Atomic("string"):
        return array
    texts = json_texts(kind, array)
    if kind in _SHOWN_WITHOUT_QUOTES or isinstance(kind, Interval):
        texts = pc.replace_substring_regex(texts, r'^"|"$', "")
    return pc.if_else(array.is_valid(), texts, buffers.text(None))


def cell_texts(kind: SqlType, array: pa.Array) -> list[str | None]:
    """Return ``cells`` as Python strings; bytes that are not valid UTF-8 are replaced."""
    encoded = cells(kind, array).cast(pa.binary()).to_pylist()
    return [None if text is None else text.decode("utf-8", "replace") for text in encoded]


def sql_type_of(kind: pa.DataType) -> SqlType:
    """Return the Spark type that is nearest to an Arrow type, for columns that come from SQL."""
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


def in_standard_units(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, with timestamps in microseconds and times of day in nanoseconds."""
    array = buffers.one_array(column)
    if pa.types.is_timestamp(array.type) and array.type.unit != "us":
        return array.cast(pa.timestamp("us", array.type.tz), safe=False)
    if pa.types.is_time(array.type):
        return array.cast(pa.time64("ns"))
    return array


def csv_text(table: pa.Table, *, header: bool = True) -> str:
    """Return a table as csv, with or without its header.

    Times are in ISO 8601, each field of a struct has a column, and other nested values are JSON.
    """
    from pyarrow import csv  # noqa: PLC0415  rarely needed

    arrays = [in_standard_units(column) for column in table.columns]
    flat = FlatColumns.of(table.column_names, [sql_type_of(array.type) for array in arrays], arrays)
    columns = [
        array if _is_plain_in_csv(array.type) else cells(kind, array)
        for kind, array in zip(flat.types, flat.arrays, strict=True)
    ]
    buffer = io.BytesIO()
    csv.write_csv(
        pa.table(columns, names=flat.names), buffer, csv.WriteOptions(include_header=header, quoting_style="needed")
    )
    return buffer.getvalue().decode("utf-8")


def for_parquet(table: pa.Table) -> pa.Table:
    """Return a table in which types that Parquet lacks, such as intervals, are text."""
    columns = [
        cells(sql_type_of(column.type), in_standard_units(column)) if _is_missing_in_parquet(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _is_plain_in_csv(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return any(test(kind) for test in tests)


def _is_missing_in_parquet(kind: pa.DataType) -> bool:
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    missing = pa.types.is_interval(kind) or pa.types.is_duration(kind) or pa.types.is_null(kind)
    return bool(missing) or any(_is_missing_in_parquet(part) for part in inner)
