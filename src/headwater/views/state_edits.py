"""What a user asks of an edit, as the rows that the state is to contain: fields to set, conditions, SQL, tables.

SQL runs in DuckDB on a copy of the rows. Only values that it has changed are taken from the result, so that values of
types that DuckDB represents differently stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.ids import ANY_STORE, StoreRef
from headwater.statefiles.buffers import numbers, one_array
from headwater.statefiles.flat_rows import FlatRows
from headwater.statefiles.key_lookup import find_field
from headwater.statefiles.sqltypes import Array, Atomic, Map, SqlType, Struct, arrow_type, field_names, parse_value
from headwater.statefiles.stores import StateTarget
from headwater.statefiles.unsaferow import struct_of
from headwater.timemachine.edit import StateEditor
from headwater.timemachine.edit_plan import EditPlan
from headwater.timemachine.erase import plan_erasure_of_key, plan_erasure_of_rows
from headwater.timemachine.row_edits import Wanted
from headwater.views import state_sql

_STATEMENT = re.compile(r"\s*(update|delete|insert)\b", re.IGNORECASE)


def plan_edit(
    files: FileTree,
    ref: StoreRef = ANY_STORE,
    *,
    key: Mapping[str, str] | None = None,
    where: str | None = None,
    fields: Mapping[str, object] | None = None,
    remove: bool = False,
    insert: bool = False,
    sql: str | None = None,
    rows: pa.Table | None = None,
    rows_from: str = "the table",
    reason: str | None = None,
    sink: str | None = None,
    erase: bool = False,
) -> EditPlan:
    """Plan an edit of the state after the last batch.

    ``key`` and ``where`` choose rows, whose fields are set or which are removed; or ``sql`` changes the table ``state``;
    or ``rows`` are put into the state. With ``key`` alone, a removal from a join or from custom state concerns everything
    that belongs to the key. With ``erase``, a removal also concerns all earlier batches, and cannot be undone.
    """
    _refuse_contradictions(key=key, where=where, fields=fields, remove=remove, insert=insert, sql=sql, rows=rows)
    if erase and not remove:
        raise UsageProblem("bad-option", "--erase needs --delete", remedy="--delete --erase --key FIELD=VALUE")
    editor = StateEditor(files, ref, sink=sink)
    if erase and key and where is None:
        return plan_erasure_of_key(editor, key, reason=reason)
    if remove and key and where is None and ref.var is None and editor.has_several_parts:
        return editor.plan_key_removal(key, reason=reason)
    target = editor.target(key or ())
    if sql is not None:
        wanted = by_sql(target, editor.rows(target), sql)
    elif rows is not None:
        wanted = from_table(target, rows, rows_from)
    else:
        found = editor.rows(target, key)
        found = found if where is None else matching(target, found, where)
        if erase:
            return plan_erasure_of_rows(editor, target, found, reason=reason)
        if not found.num_rows and insert:
            wanted = adding(target, key or {}, fields or {})
        elif not found.num_rows:
            raise _no_such_row(target, key, can_insert=bool(key and fields and where is None))
        else:
            wanted = removing(found) if remove else setting(target, found, fields or {})
    return editor.plan({target: wanted}, reason=reason)


def _refuse_contradictions(**given: object) -> None:
    has = {name for name, value in given.items() if value is not None and value is not False and value != {}}
    alone = has & {"sql", "rows"}
    problem = None
    if not has & {"fields", "remove", "insert", "sql", "rows"}:
        problem = "no change is given"
    elif alone and len(has) > 1:
        problem = "SQL statements and rows to put cannot be combined with each other or with keys and conditions"
    elif {"fields", "remove"} <= has:
        problem = "rows are either changed or removed"
    elif has & {"fields", "remove"} and not has & {"key", "where"}:
        problem = "the rows to change are not given"
    elif "insert" in has and ("key" not in has or has & {"where", "remove"}):
        problem = "a new row needs a key"
    if problem:
        raise UsageProblem(
            "bad-option",
            problem,
            remedy="--key FIELD=VALUE or --where SQL, with --set FIELD=VALUE or --delete; or --sql; or --from FILE",
        )


def _no_such_row(target: StateTarget, key: Mapping[str, str] | None, *, can_insert: bool) -> ChangeRefused:
    return ChangeRefused(
        "no-such-row",
        "no row of the state matches",
        evidence={
            "state": target.label,
            **({"key": ", ".join(f"{name}={text}" for name, text in key.items())} if key else {}),
        },
        remedy="add --insert to add the row; fields that are not set are null" if can_insert else None,
    )


def removing(rows: pa.Table) -> Wanted:
    """Remove rows."""
    return Wanted(removed=rows)


def setting(target: StateTarget, rows: pa.Table, fields: Mapping[str, object]) -> Wanted:
    """Set fields of the value of some rows. ``window.start`` is a field of a struct."""
    flat = FlatRows.of(target)
    columns = {name: one_array(rows[name]) for name in rows.column_names}
    for name, value in fields.items():
        path, kind = _value_field(target, flat, name)
        scalar = _parsed(name, kind, value)
        column = flat.value_names[path[0]]
        column_type = flat.value_fields[path[0]].type
        columns[column] = _with_field(column_type, columns[column], path[1:], scalar, rows.num_rows)
    return Wanted(rows=pa.table(columns))


def adding(target: StateTarget, key: Mapping[str, str], fields: Mapping[str, object]) -> Wanted:
    """Add one row. Every field of the key has to be given; fields of the value that are not set are null."""
    flat = FlatRows.of(target)
    names = dict(zip((field.name for field in flat.key_fields), flat.key_names, strict=True))
    empty = pa.table({name: pa.nulls(1, kind) for name, kind in zip(flat.schema.names, flat.schema.types, strict=True)})
    columns = {name: one_array(empty[name]) for name in empty.column_names}
    given = {name.removeprefix("user_map_key."): text for name, text in key.items()}
    kind = Struct(flat.key_fields)
    for name, text in given.items():
        path, field_type = find_field(kind, name)
        column = names[flat.key_fields[path[0]].name]
        value = _parsed(name, field_type, text)
        columns[column] = _with_field(flat.key_fields[path[0]].type, columns[column], path[1:], value, 1)
    missing = [name for name in field_names(kind) if name not in given]
    if missing:
        raise UsageProblem(
            "bad-key",
            "a new row needs every field of its key",
            evidence={"missing": ", ".join(missing)},
            remedy=f"--key {missing[0]}=VALUE",
        )
    return setting(target, pa.table(columns), fields)


def matching(target: StateTarget, rows: pa.Table, condition: str) -> pa.Table:
    """Return the rows that meet a condition."""
    return state_sql.where_in_table(rows, condition, _named(target))


def by_sql(target: StateTarget, rows: pa.Table, statement: str) -> Wanted:
    """Return the rows that an ``update``, ``delete`` or ``insert`` on the table ``state`` leaves."""
    if not _STATEMENT.match(statement):
        raise UsageProblem(
            "bad-sql",
            "an edit is an UPDATE, DELETE or INSERT on the table state",
            evidence={"SQL": statement},
            remedy="--sql \"UPDATE state SET count = 0 WHERE user = 'ann'\"",
        )
    flat = FlatRows.of(target)
    result = state_sql.edited(rows, statement, _named(target))
    is_new, row = result.is_new, result.row
    columns: dict[str, pa.Array] = {}
    for field in flat.types.fields:
        changed = result.changed[field.name]
        if changed[~is_new].any() and field.name in opaque_columns(target):
            raise _opaque(field.name)
        new = one_array(result.rows[field.name])
        columns[field.name] = _mixed(field.type, one_array(rows[field.name]), new, row, changed)
    # A row whose key has changed is removed under its old key.
    removed = np.concatenate([result.removed, row[~is_new]])
    return Wanted(rows=pa.table(columns), removed=rows.take(numbers(removed)))


def from_table(target: StateTarget, table: pa.Table, what: str = "the table") -> Wanted:
    """Return the rows of a table; other rows stay as they are."""
    return Wanted(rows=FlatRows.of(target).conform(table, what))


def opaque_columns(target: StateTarget) -> set[str]:
    """Return the columns that contain variants, which are kept as bytes and cannot be set."""
    flat = FlatRows.of(target)
    plain = FlatRows(target)
    pairs = zip(flat.names, (*plain.key_fields, *plain.value_fields), strict=True)
    return {name for name, field in pairs if _contains_variant(field.type)}


def _contains_variant(kind: SqlType) -> bool:
    match kind:
        case Atomic(name):
            return name == "variant"
        case Array(element):
            return _contains_variant(element)
        case Map(key, value):
            return _contains_variant(key) or _contains_variant(value)
        case Struct(fields):
            return any(_contains_variant(field.type) for field in fields)
        case _:
            return False


def _opaque(name: str) -> UsageProblem:
    return UsageProblem("bad-value", f"{name} contains a variant, which an edit cannot set")


def _value_field(target: StateTarget, flat: FlatRows, name: str) -> tuple[tuple[int, ...], SqlType]:
    """Return the path of a field in the value. A name that repeats has the suffix that the table shows."""
    shown = Struct(tuple(field for field in flat.types.fields if field.name in flat.value_names))
    try:
        path, kind = find_field(shown, name if "value" in shown.names else name.removeprefix("value."))
    except UsageProblem:
        raise UsageProblem(
            "no-value-field",
            f"the value has no field {name!r}",
            evidence={"fields of the value": ", ".join(field_names(shown)) or "none"},
        ) from None
    if flat.value_names[path[0]] in opaque_columns(target) and len(path) == 1:
        raise _opaque(name)
    return path, kind


def _parsed(name: str, kind: SqlType, value: object) -> pa.Array:
    """Return an array of one value, given as text in the form of ``state`` (JSON if nested), or as a Python value."""
    arrow = arrow_type(kind)
    try:
        if value is None or (value == "null" and kind != Atomic("string")):
            return pa.nulls(1, arrow)
        if isinstance(value, str) and isinstance(kind, Struct | Array | Map):
            return pa.array([_items(kind, json.loads(value))], arrow)
        if isinstance(value, str):
            # pa.array would import pandas, which takes longer than most edits.
            return pa.nulls(1, arrow).fill_null(parse_value(kind, value))
        return pa.array([value], arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError, OverflowError):
        raise UsageProblem(
            "bad-value", f"{value!r} is not a valid value for {name}", evidence={"type": str(arrow)}
        ) from None


def _items(kind: SqlType, value: Any) -> Any:
    """Return a value from JSON as Arrow expects it: maps as pairs, other values parsed from their text."""
    match kind:
        case _ if value is None:
            return None
        case Map(key, item):
            return [(_items(key, name), _items(item, each)) for name, each in value.items()]
        case Array(element):
            return [_items(element, each) for each in value]
        case Struct(fields):
            unknown = set(value) - {field.name for field in fields}
            if unknown:
                raise ValueError(f"unknown field {min(unknown)}")
            return {field.name: _items(field.type, value.get(field.name)) for field in fields}
        case Atomic("string"):
            return value
        case _:
            return parse_value(kind, value if isinstance(value, str) else json.dumps(value)).as_py()


def _with_field(kind: SqlType, column: pa.Array, path: tuple[int, ...], value: pa.Array, count: int) -> pa.Array:
    """Return a column in which the field at a path has one value in every row."""
    if not path:
        return value.take(numbers(np.zeros(count, np.int64)))
    assert isinstance(kind, Struct)
    parts = list(column.flatten())
    parts[path[0]] = _with_field(kind.fields[path[0]].type, parts[path[0]], path[1:], value, count)
    return struct_of(kind, parts, count, None)


def _named(target: StateTarget) -> dict[str, dict[str, str]]:
    flat = FlatRows.of(target)
    return {
        "key": {one.name.lower(): name for one, name in zip(flat.key_fields, flat.key_names, strict=True)},
        "value": {one.name.lower(): name for one, name in zip(flat.value_fields, flat.value_names, strict=True)},
        "flat": {name.lower(): name for name in flat.names},
    }


def _mixed(kind: SqlType, old: pa.Array, new: pa.Array, row: np.ndarray, changed: np.ndarray) -> pa.Array:
    """Return the old value of each row, or the new one where it changed, in the type of the state."""
    arrow = arrow_type(kind)
    if not changed.any():
        return old.take(numbers(row))
    try:
        fresh = new.take(numbers(np.flatnonzero(changed))).cast(arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UsageProblem(
            "bad-value",
            "the SQL sets a value that this state cannot contain",
            evidence={"type of the state": arrow, "type given": new.type, "reason": str(error).splitlines()[0]},
        ) from None
    index = row.copy()
    index[changed] = len(old) + np.arange(len(fresh))
    return pa.concat_arrays([old, fresh]).take(numbers(index))
