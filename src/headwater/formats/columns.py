"""Columns of decoded records, as Spark and as Arrow know them, and rows as Arrow arrays."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol

import pyarrow as pa

from headwater.formats.schema import MalformedRecord

ARROW_ERRORS = (pa.ArrowException, OverflowError, ValueError, TypeError)


@dataclass(frozen=True)
class ColumnType:
    """A type, as Spark's DDL and as Arrow write it."""

    ddl: str
    arrow: pa.DataType


@dataclass(frozen=True)
class RowType:
    """The columns of a record."""

    columns: Mapping[str, ColumnType]

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{name}` {column.ddl}" for name, column in self.columns.items())

    @property
    def arrow(self) -> pa.StructType:
        return pa.struct([(name, column.arrow) for name, column in self.columns.items()])


class Decoder(Protocol):
    """Decodes single records."""

    row_type: RowType

    def decode(self, data: bytes) -> dict[str, Any]: ...

    def problem(self, data: bytes) -> str | None: ...


def json_of(row: Mapping[str, Any]) -> str:
    """Return a decoded record as JSON. Bytes are base64, as in Spark's ``to_json``."""
    return json.dumps(row, default=_printable, ensure_ascii=False)


def _printable(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def struct_of(fields: Mapping[str, ColumnType]) -> ColumnType:
    ddl = ", ".join(f"`{name}`: {column.ddl}" for name, column in fields.items())
    return ColumnType(f"STRUCT<{ddl}>", pa.struct([(name, column.arrow) for name, column in fields.items()]))


def decode_all(decoder: Decoder, values: Sequence[bytes | None]) -> tuple[list[pa.Array], pa.Array]:
    """Return the columns of records, and which records are malformed; their columns are null."""
    rows: list[dict[str, Any] | None] = []
    for value in values:
        try:
            rows.append(None if value is None else decoder.decode(value))
        except MalformedRecord:
            rows.append(None)
    arrow = decoder.row_type.arrow
    try:
        records = pa.array(rows, arrow)
    except ARROW_ERRORS:
        # One record has a value that its column cannot hold, such as a decimal with too many digits.
        rows = [None if row is None or _conversion_problem(row, arrow) else row for row in rows]
        records = pa.array(rows, arrow)
    return records.flatten(), pa.array([row is None for row in rows])


def row_problem(decoder: Decoder, data: bytes) -> str | None:
    """Return why a record is malformed; None if it is not."""
    try:
        return _conversion_problem(decoder.decode(data), decoder.row_type.arrow)
    except MalformedRecord as error:
        return str(error)


def _conversion_problem(row: Mapping[str, Any], arrow: pa.StructType) -> str | None:
    try:
        pa.array([row], arrow)
    except ARROW_ERRORS as error:
        return f"a value is out of the range of its column: {error}"
    return None
