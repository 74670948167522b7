"""Types as DDL, as Spark writes them."""

from __future__ import annotations

from headwater.statefiles.schemafile import FamilySchema
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Interval, Map, SqlType, Struct

_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}


def type_text(kind: SqlType) -> str:
    match kind:
        case Atomic(name):
            return _NAMES.get(name, name.upper())
        case Decimal(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case Interval(_, units):
            return f"INTERVAL {units.upper()}"
        case Array(element):
            return f"ARRAY<{type_text(element)}>"
        case Map(key, value):
            return f"MAP<{type_text(key)}, {type_text(value)}>"
        case Struct(fields):
            return f"STRUCT<{', '.join(f'{quoted(field.name)}: {type_text(field.type)}' for field in fields)}>"


def columns_text(kind: Struct) -> str:
    return ", ".join(f"{quoted(field.name)} {type_text(field.type)}" for field in kind.fields)


def schema_text(schema: FamilySchema) -> str:
    return f"key: {columns_text(schema.key)}; value: {columns_text(schema.value)}"


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
