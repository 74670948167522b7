"""Records of another writer, read with the schema of a job.

``fastavro`` would convert values by the logical types of the writer and leave defaults as they are in JSON. It is
therefore given both schemas without their logical types, with defaults as it decodes values. What it returns is then
converted by the logical types of the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from headwater.core.times import EPOCH

Conversion: TypeAlias = Callable[[Any], Any]
Named: TypeAlias = Mapping[str, Any]

LOCAL_EPOCH = EPOCH.replace(tzinfo=None)
EPOCH_DAY = EPOCH.date()
UNIT_NANOS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
UNITS = {f"{kind}-{unit}": nanos for kind in ("timestamp", "local-timestamp") for unit, nanos in UNIT_NANOS.items()}
# How JSON has values of the types that need no conversion.
JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "string": str,
    "enum": str,
}
MISMATCHES = (ValueError, KeyError, TypeError, AttributeError)


def fill_defaults(named: Named) -> None:
    """Replace the JSON defaults of all fields by values as a decoder returns them.

    A default that does not match its type is removed: records without the field are then malformed.
    """
    fields = [one for schema in named.values() for one in schema.get("fields", ()) if "default" in one]
    # All are decoded before the first is replaced: the default of a record may need those of its own fields.
    for one, decoded in zip(fields, [_default_of(one, named) for one in fields], strict=True):
        del one["default"]
        one.update(decoded)


def _default_of(field: Mapping[str, Any], named: Named) -> dict[str, Any]:
    try:
        return {"default": _decoded_default(field["default"], field["type"], named)}
    except (*MISMATCHES, RecursionError):
        return {}


def _decoded_default(value: Any, schema: Any, named: Named) -> Any:
    schema = _resolved(schema, named)
    if isinstance(schema, list):
        for branch in schema:
            try:
                return _decoded_default(value, branch, named)
            except MISMATCHES:
                continue
        raise ValueError("the default matches no branch of its union")
    match _kind(schema):
        case "null" if value is None:
            return None
        case "bytes" | "fixed":
            return value.encode("iso-8859-1")
        case "float" | "double" if not isinstance(value, bool):
            return float(value)
        case "array" if isinstance(value, list):
            return [_decoded_default(one, schema["items"], named) for one in value]
        case "map":
            return {key: _decoded_default(one, schema["values"], named) for key, one in value.items()}
        case "record" | "error":
            return {
                one["name"]: _decoded_default(
                    value[one["name"]] if one["name"] in value else one["default"], one["type"], named
                )
                for one in schema["fields"]
            }
        case kind if isinstance(value, JSON_TYPES.get(kind, ())) and isinstance(value, bool) == (kind == "boolean"):
            return value
        case kind:
            raise ValueError(f"{value!r} is not a default of the type {kind}")


class Conversions:
    """Builds the conversions of a reader's types from values without logical types.

    Where the writer has a time or a decimal as well, its unit or scale applies, as the value was written with it.
    """

    def __init__(self, reader: Named, writer: Named) -> None:
        self._reader = reader
        self._writer = writer

    def of(self, schema: Any, written: Any = None) -> Conversion | None:
        """Return the conversion of a type; None if its values stay as they are.

        ``written`` is the writer's type, None for a default. The reader's type is not recursive.
        """
        schema = _resolved(schema, self._reader)
        if isinstance(schema, list):
            others = [branch for branch in schema if branch != "null"]
            # Spark has no type for other unions, except for those of two numbers, which have no logical types.
            return _nullable(self.of(others[0], written)) if len(others) == 1 else None
        kind = _kind(schema)
        written = self._branch(written, schema)
        match kind:
            case "array":
                return _items(self.of(schema["items"], _part(written, "items")))
            case "map":
                return _values(self.of(schema["values"], _part(written, "values")))
            case "record" | "error":
                return self._record(schema, written)
        return _logical(kind, schema, written)

    def _record(self, schema: Any, written: Any) -> Conversion | None:
        types = {one["name"]: one["type"] for one in _part(written, "fields") or ()}
        changed: dict[str, Conversion] = {}
        for field in schema["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            conversion = self.of(field["type"], next((types[name] for name in names if name in types), None))
            if conversion is not None:
                changed[field["name"]] = conversion
        if not changed:
            return None
        return lambda record: {
            name: changed[name](value) if name in changed else value for name, value in record.items()
        }

    def _branch(self, written: Any, schema: Any) -> Any:
        """Return the writer's type, for a union the branch that a reader's type is resolved with: by name if it has one."""
        written = _resolved(written, self._writer)
        if not isinstance(written, list):
            return written
        branches = [_resolved(branch, self._writer) for branch in written if branch != "null"]
        alike = [one for one in branches if _kind(one) == _kind(schema)]
        names = {_simple(name) for name in (_part(schema, "name"), *(_part(schema, "aliases") or ())) if name}
        named = [one for one in alike if _simple(_part(one, "name") or "") in names]
        return next(iter([*named, *alike]), branches[0] if len(branches) == 1 else None)


def _logical(kind: str, schema: Any, written: Any) -> Conversion | None:
    match kind, _part(schema, "logicalType"):
        case "int", "date":
            return lambda days: EPOCH_DAY + timedelta(days=days)
        case "long", "timestamp-millis" | "timestamp-micros" as unit:
            return _time(EPOCH, _unit(unit, written))
        case "long", "local-timestamp-millis" | "local-timestamp-micros" as unit:
            return _time(LOCAL_EPOCH, _unit(unit, written))
        case "bytes" | "fixed", "decimal":
            scale = _part(written if _part(written, "logicalType") == "decimal" else schema, "scale") or 0
            return lambda data: Decimal(f"{int.from_bytes(data, signed=True)}E-{scale}")
    return None


def _unit(own: str, written: Any) -> int:
    return UNITS.get(_part(written, "logicalType"), UNITS[own])


def _time(epoch: datetime, nanos: int) -> Conversion:
    return lambda value: epoch + timedelta(microseconds=value * nanos // 1_000)


def _nullable(conversion: Conversion | None) -> Conversion | None:
    return conversion and (lambda value: None if value is None else conversion(value))


def _items(conversion: Conversion | None) -> Conversion | None:
    return conversion and (lambda values: [conversion(value) for value in values])


def _values(conversion: Conversion | None) -> Conversion | None:
    return conversion and (lambda values: {key: conversion(value) for key, value in values.items()})


def _resolved(schema: Any, named: Named) -> Any:
    """Return a type without the names that refer to it: a union, a dictionary, or the name of a primitive type."""
    while True:
        if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            schema = schema["type"]
        elif _kind(schema) in named:
            schema = named[_kind(schema)]
        else:
            return schema


def _kind(schema: Any) -> Any:
    if isinstance(schema, dict):
        return schema["type"]
    return schema if isinstance(schema, str) else None


def _simple(name: str) -> str:
    """Return the name of a type without its namespace."""
    return name.rpartition(".")[2]


def _part(schema: Any, name: str) -> Any:
    return schema.get(name) if isinstance(schema, dict) else None
