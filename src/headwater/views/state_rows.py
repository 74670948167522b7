"""Rows of state as plain dictionaries, as tables that can be put into a state.

A row is flat, ``{"user": "ann", "total": 5}``, or has ``key`` and ``value``, as ``state --json`` shows it. Times may be
texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.core.errors import UsageProblem
from headwater.statefiles.flat_rows import LIST, FlatRows
from headwater.statefiles.sqltypes import Array, Atomic, Map, SqlType, Struct, arrow_type, parse_value
from headwater.statefiles.stores import StateTarget

Row = Mapping[str, Any]
_ABOUT = ("operator_id", "store", "var", "partition_id")


def rows_as_table(target: StateTarget, rows: Sequence[Row]) -> pa.Table:
    """Return dictionaries as a flat table of a store or variable. Fields of the value that are not given are null."""
    flat = FlatRows.of(target)
    plain = [_flat_row(flat, row) for row in rows]
    if target.is_list:
        plain = _one_list_per_key(flat, plain)
    for row in plain:
        _refuse_other_fields(flat, row)
    return pa.table(
        {
            field.name: _column(field.name, field.type, [row.get(field.name) for row in plain])
            for field in flat.types.fields
        }
    )


def _flat_row(flat: FlatRows, row: Row) -> dict[str, Any]:
    rest = {name: value for name, value in row.items() if name not in _ABOUT or name in flat.names}
    key, value = rest.get("key"), rest.get("value")
    if not isinstance(key, Mapping) or "key" in flat.names:
        return rest
    grouping: dict[str, Any] = dict(key)
    parts: Row = value if isinstance(value, Mapping) else {}
    if "user_map_key" in parts:
        grouping |= parts["user_map_key"]
        parts = parts["user_map_value"] or {}
    elif "list_element" in parts:
        parts = {LIST: [parts["list_element"]]}
    keys: dict[str, str] = {field.name: name for field, name in zip(flat.key_fields, flat.key_names, strict=True)}
    values: dict[str, str] = {field.name: name for field, name in zip(flat.value_fields, flat.value_names, strict=True)}
    found: dict[str, Any] = {keys.get(name, name): each for name, each in grouping.items()}
    return found | {values.get(name, name): each for name, each in parts.items()}


def _one_list_per_key(flat: FlatRows, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = json.dumps([row.get(name) for name in flat.key_names], default=str)
        if key in found:
            found[key] = {**found[key], LIST: [*found[key][LIST], *row[LIST]]}
        else:
            found[key] = row
    return list(found.values())


def _refuse_other_fields(flat: FlatRows, row: Row) -> None:
    missing = [name for name in flat.key_names if name not in row]
    unknown = [name for name in row if name not in flat.names]
    if missing or unknown:
        raise UsageProblem(
            "bad-rows",
            f"a row does not have the columns of {flat.target.label}",
            evidence={
                **({"missing": ", ".join(missing)} if missing else {}),
                **({"unknown": ", ".join(unknown)} if unknown else {}),
                "columns": ", ".join(flat.names),
            },
        )


def _column(name: str, kind: SqlType, values: list[Any]) -> pa.Array:
    arrow = arrow_type(kind)
    try:
        return pa.array([_item(kind, value) for value in values], arrow)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        ValueError,
        TypeError,
        OverflowError,
    ) as error:
        raise UsageProblem(
            "bad-value",
            f"a row has a value in {name} that this state cannot contain",
            evidence={"type": arrow, "reason": str(error).splitlines()[0]},
        ) from None


def _item(kind: SqlType, value: Any) -> Any:
    """Return a value as Arrow expects it: maps as pairs, texts parsed unless they are strings."""
    match kind:
        case _ if value is None:
            return None
        case Map(key, item):
            pairs = value.items() if isinstance(value, Mapping) else value
            return [(_item(key, name), _item(item, each)) for name, each in pairs]
        case Array(element):
            return [_item(element, each) for each in value]
        case Struct(fields):
            return {field.name: _item(field.type, value.get(field.name)) for field in fields}
        case Atomic(name) if isinstance(value, str) and name != "string":
            return parse_value(kind, value).as_py()
        case _:
            return value
