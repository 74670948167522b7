"""Rows of custom state as bytes, as the Java class of the same name writes and reads them.

The first byte is 1 if one byte per field follows, 0 for null and 1 before a value in the field's format. It is 0 if the
length of a pickled row and the row follow, in the form that Spark's own state server understands: for nested and other
rare types, and for values whose conversion is best left to Spark, such as a number that is too large for its column.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from struct import Struct, error
from typing import Any

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    Row,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    _create_row,
)

Values = tuple[Any, ...]

PICKLED = Struct("!Bi")
LENGTH = Struct("!i")
# For each type the character of its format, and the Python type of its values.
FORMATS: dict[type[DataType], tuple[str, type]] = {
    LongType: ("q", int),
    IntegerType: ("i", int),
    ShortType: ("h", int),
    ByteType: ("b", int),
    DoubleType: ("d", float),
    BooleanType: ("?", bool),
    TimestampType: ("q", datetime.datetime),
    TimestampNTZType: ("q", datetime.datetime),
    DateType: ("i", datetime.date),
}
# Python and Spark do not agree on which of these are equal.
INCOMPARABLE = "d"


class RowFormat:
    """Writes and reads the rows of one schema."""

    def __init__(
        self, schema: StructType, pickled: Callable[[StructType, Any], bytes], load: Callable[[bytes], Any]
    ) -> None:
        self.schema = schema
        self._pickled = pickled
        self._load = load
        self._names = list(schema.names)
        self.formats = _formats_of(schema)
        self._types = tuple(kind for field in schema for _, kind in [_format_of(field.dataType)])
        self._internal = [field.dataType if field.dataType.needConversion() else None for field in schema]
        self._converts = any(self._internal)
        is_fixed = bool(self.formats) and "s" not in self.formats
        # Rows without null whose fields all have the same size: one call writes or reads them.
        self._fixed = Struct("!B" + "".join("B" + one for one in self.formats)) if is_fixed else None
        self._one_text = self.formats == "s"

    @property
    def keeps_equality(self) -> bool:
        """Return whether two rows are the same for Spark if, and only if, their bytes are."""
        return bool(self.formats) and INCOMPARABLE not in self.formats

    def description(self) -> bytes:
        return describe(self.schema)

    def encode(self, row: Any) -> bytes:
        """Return a row's bytes. The first of them tells whether Spark returns the same bytes for the row."""
        if self.formats and isinstance(row, (tuple, list)):
            try:
                if tuple(map(type, row)) == self._types:
                    return self._encode_plain(row)
                if self._is_plain_or_null(row):
                    return b"\1" + b"".join(map(_encode_value, self.formats, self._to_internal(row)))
            except (error, UnicodeError, OverflowError):
                pass  # Spark decides what becomes of such a value
        pickled = self._pickled(self.schema, row)
        return PICKLED.pack(0, len(pickled)) + pickled

    def _encode_plain(self, row: Values | list[Any]) -> bytes:
        if self._one_text:
            text = row[0].encode()
            return b"\1\1" + LENGTH.pack(len(text)) + text
        values = self._to_internal(row) if self._converts else row
        if self._fixed and len(values) == 1:
            return self._fixed.pack(1, 1, values[0])
        return b"\1" + b"".join(map(_encode_value, self.formats, values))

    def _is_plain_or_null(self, row: Values | list[Any]) -> bool:
        """Return whether each value is of its field's type, or null."""
        return len(row) == len(self._types) and all(
            one is None or type(one) is kind for one, kind in zip(row, self._types, strict=True)
        )

    def _to_internal(self, row: Iterable[Any]) -> list[Any]:
        return [
            value if kind is None or value is None else kind.toInternal(value)
            for kind, value in zip(self._internal, row, strict=True)
        ]

    def decode(self, data: bytes) -> Values:
        """Return the values of a row."""
        if data[0] == 0:
            return tuple(self._load(data[PICKLED.size :]))
        if self._fixed and len(data) == self._fixed.size:
            values: Any = self._fixed.unpack(data)[2::2]
        elif self._one_text and data[1]:
            values = (data[6:].decode(),)
        else:
            values = _decode_values(self.formats, data)
        if self._converts:
            return tuple(
                value if kind is None or value is None else kind.fromInternal(value)
                for kind, value in zip(self._internal, values, strict=True)
            )
        return values if type(values) is tuple else tuple(values)

    def decode_row(self, data: bytes) -> Row:
        """Return a row with the names of its fields."""
        if data[0] == 0:
            row: Row = self._load(data[PICKLED.size :])
            return row
        return _create_row(self._names, self.decode(data))


def describe(schema: StructType) -> bytes:
    """Return how rows of a schema are written, for the state server."""
    return sized_text(schema.json()) + sized_text(_formats_of(schema))


def _formats_of(schema: StructType) -> str:
    """Return a character for each field, or an empty string if rows of this schema are pickled."""
    formats = [_format_of(field.dataType)[0] for field in schema]
    return "".join(formats) if all(formats) else ""


def _format_of(data_type: DataType) -> tuple[str, type]:
    if data_type == StringType():
        return "s", str
    return FORMATS.get(type(data_type), ("", object))


_STRUCTS = {one: Struct("!B" + one) for one, _ in FORMATS.values()}


def _encode_value(kind: str, value: Any) -> bytes:
    if value is None:
        return b"\0"
    if kind == "s":
        text = value.encode()
        return b"\1" + LENGTH.pack(len(text)) + text
    return _STRUCTS[kind].pack(1, value)


def _decode_values(formats: str, data: bytes) -> list[Any]:
    values: list[Any] = []
    at = 1
    for kind in formats:
        if data[at] == 0:
            values.append(None)
            at += 1
        elif kind == "s":
            start = at + 5
            at = start + LENGTH.unpack_from(data, at + 1)[0]
            values.append(data[start:at].decode())
        else:
            values.append(_STRUCTS[kind].unpack_from(data, at)[1])
            at += _STRUCTS[kind].size
    return values


def sized_text(text: str) -> bytes:
    data = text.encode()
    return LENGTH.pack(len(data)) + data
