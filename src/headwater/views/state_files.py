"""State as files that other programs read: csv and parquet."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa

from headwater.views.state_table import cells, settled, spread, sql_type_of


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
