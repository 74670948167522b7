"""Spark SQL types as a checkpoint's schema files write them, and the Arrow types that stand for them here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


class TypeUnknown(ValueError):
    """A type whose bytes are not known here."""


@dataclass(frozen=True)
class Atomic:
    """A type without parts, by the name that Spark's JSON has for it (``long``, ``timestamp_ntz``, ``void``)."""

    name: str


@dataclass(frozen=True)
class Decimal:
    precision: int
    scale: int


@dataclass(frozen=True)
class Interval:
    """A year-month (months) or day-time (microseconds) interval; ``units`` such as ``day to second``, for printing."""

    months: bool
    units: str


@dataclass(frozen=True)
class Array:
    element: SqlType


@dataclass(frozen=True)
class Map:
    key: SqlType
    value: SqlType


@dataclass(frozen=True)
class Field:
    name: str
    type: SqlType


@dataclass(frozen=True)
class Struct:
    fields: tuple[Field, ...]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def slice(self, first: int, end: int | None = None) -> Struct:
        return Struct(self.fields[first:end])


SqlType = Atomic | Decimal | Interval | Array | Map | Struct

_DECIMAL = re.compile(r"decimal\(([0-9]+), ?(-?[0-9]+)\)")
_INTERVAL = re.compile(r"interval ((year|month|day|hour|minute|second)(?: to (?:month|hour|minute|second))?)")
_TEXT = re.compile(r"(string|char|varchar)\b.*")
_TIME = re.compile(r"time\([0-9]\)")

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
    """The schema in Spark's JSON form; raises ``TypeUnknown`` for a type that is not known here."""
    found = parse_type(json.loads(text))
    if not isinstance(found, Struct):
        raise TypeUnknown(f"a {text[:40]} where a struct belongs")
    return found


def parse_type(value: Any) -> SqlType:
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
            raise TypeUnknown(f"type {other!r}")


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
    raise TypeUnknown(f"type {name!r}")


def arrow_type(kind: SqlType) -> pa.DataType:
    """The Arrow type of a column. Inside a struct a name that repeats gets a suffix, so that every field can be named."""
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
    """``sum, count, sum`` as ``sum, count, sum_2``. Case is no difference: SQL does not see it."""
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
