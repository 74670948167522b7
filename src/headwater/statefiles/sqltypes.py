"""Spark SQL types as they appear in a checkpoint's schema files, and the Arrow types that represent them.

Users name the fields of a struct, and give values of a type, as text.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.statefiles import buffers


class UnknownType(ValueError):
    """A type whose encoding is not known."""


@dataclass(frozen=True)
class Atomic:
    """A type without parts, by its name in Spark's JSON (``long``, ``timestamp_ntz``, ``void``)."""

    name: str


@dataclass(frozen=True)
class Decimal:
    """A decimal number."""

    precision: int
    scale: int


@dataclass(frozen=True)
class Interval:
    """A year-month interval (in months) or day-time interval (in microseconds); ``units`` is for printing only."""

    months: bool
    units: str


@dataclass(frozen=True)
class Array:
    """An array of elements of one type."""

    element: SqlType


@dataclass(frozen=True)
class Map:
    """A map from keys of one type to values of another."""

    key: SqlType
    value: SqlType


@dataclass(frozen=True)
class Field:
    """A named field of a struct."""

    name: str
    type: SqlType


@dataclass(frozen=True)
class Struct:
    """A struct, or the schema of a row."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def slice(self, first: int, end: int | None = None) -> Struct:
        """Return a struct of some consecutive fields."""
        return Struct(self.fields[first:end])


SqlType = Atomic | Decimal | Interval | Array | Map | Struct

_DECIMAL = re.compile(r"decimal\(([0-9]+), ?(-?[0-9]+)\)")
_INTERVAL = re.compile(r"interval ((year|month|day|hour|minute|second)(?: to (?:month|hour|minute|second))?)")
_TEXT = re.compile(r"(string|char|varchar)\b.*")
_TIME = re.compile(r"time\([0-9]\)")
_UTC_OFFSET = re.compile(r"(Z|:\d\d(\.\d+)?[+-]\d\d(:?\d\d)?)$")

ARROW_ATOMIC: dict[str, pa.DataType] = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time": pa.time64("ns"),
    "interval": pa.month_day_nano_interval(),
    "variant": pa.string(),  # as JSON text
}


def parse_struct(text: str) -> Struct:
    """Parse a schema in Spark's JSON form. Raise ``UnknownType`` for a type that is not known."""
    found = parse_type(json.loads(text))
    if not isinstance(found, Struct):
        raise UnknownType(f"{text[:40]} where a struct was expected")
    return found


def parse_type(value: Any) -> SqlType:
    """Parse a type in Spark's JSON form, already loaded from text."""
    if isinstance(value, str):
        return _parse_name(value)
    match value["type"]:
        case "struct":
            return Struct(tuple(Field(field["name"], parse_type(field["type"])) for field in value["fields"]))
        case "array":
            return Array(parse_type(value["elementType"]))
        case "map":
            return Map(parse_type(value["keyType"]), parse_type(value["valueType"]))
        case "udt":
            return parse_type(value["sqlType"])
        case other:
            raise UnknownType(f"type {other!r}")


def _parse_name(name: str) -> SqlType:
    if name == "null":
        return Atomic("void")
    if name in ARROW_ATOMIC:
        return Atomic(name)
    if name == "decimal":
        return Decimal(10, 0)
    if decimal := _DECIMAL.fullmatch(name):
        return Decimal(int(decimal[1]), int(decimal[2]))
    if interval := _INTERVAL.fullmatch(name):
        return Interval(interval[2] in ("year", "month"), interval[1])
    if _TEXT.fullmatch(name):
        return Atomic("string")
    if _TIME.fullmatch(name):
        return Atomic("time")
    raise UnknownType(f"type {name!r}")


def arrow_type(kind: SqlType) -> pa.DataType:
    """Return the Arrow type of a column. Duplicate field names in a struct get a suffix, so that each can be addressed."""
    match kind:
        case Atomic(name):
            return ARROW_ATOMIC[name]
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Interval(months):
            return pa.month_day_nano_interval() if months else pa.duration("us")
        case Array(element):
            return pa.list_(arrow_type(element))
        case Map(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case Struct(fields):
            names = distinct([field.name for field in fields])
            return pa.struct(
                [pa.field(name, arrow_type(field.type)) for name, field in zip(names, fields, strict=True)]
            )


def distinct(names: list[str]) -> list[str]:
    """Return names made unique: ``sum, count, sum`` as ``sum, count, sum_2``. Case is ignored, as in SQL."""
    taken: set[str] = set()
    result = []
    for name in names:
        unique, number = name, 1
        while unique.lower() in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique.lower())
        result.append(unique)
    return result


def field_names(struct: Struct, prefix: str = "") -> list[str]:
    """Return the names by which the fields of a struct can be given: ``window.start`` is a field of a struct in it."""
    found: list[str] = []
    for field in struct.fields:
        name = f"{prefix}{field.name}"
        found += field_names(field.type, f"{name}.") if isinstance(field.type, Struct) else [name]
    return found


def parse_value(kind: SqlType, text: str) -> pa.Scalar:
    """Return a value of a type that is not nested, given as text. Bytes are in base64, times in UTC."""
    arrow = arrow_type(kind)
    if kind == Atomic("binary"):
        # Bytes are given as they are shown.
        data = base64.b64decode(text, validate=True)
        return buffers.binary(arrow, buffers.ByteSpace(data), np.array([0]), np.array([len(data)]), None)[0]
    if pa.types.is_timestamp(arrow) and arrow.tz is not None and not _UTC_OFFSET.search(text):
        text = f"{text}Z"
    return buffers.text(text).cast(arrow)
