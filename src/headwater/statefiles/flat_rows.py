"""The rows of a store as a flat table that can be edited, and back to stored keys and values.

There is one row per key. The columns are the fields of key and value under unique names, as ``state --sql`` has them;
a list is one column, ``list_value``. Variants are bytes, so that they stay exactly as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headwater.core.errors import UsageProblem
from headwater.statefiles.buffers import one_array
from headwater.statefiles.columns import flattened
from headwater.statefiles.keyencoder import storage_target
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import Records
from headwater.statefiles.sqltypes import Array, Field, Struct, arrow_type, distinct
from headwater.statefiles.stores import StateTarget
from headwater.statefiles.unsaferow import struct_of

LIST = "list_value"
# Columns of ``state --json`` that are not part of a row.
_IGNORED = ("partition_id", "operator_id", "store", "var")
# Columns of ``Checkpoint.state`` that have several columns of a row.
_STRUCTS = ("key", "value", "user_map_key", "user_map_value")


@dataclass(frozen=True)
class FlatRows:
    """Converts between the stored rows of a target and a flat table."""

    target: StateTarget

    @classmethod
    def of(cls, target: StateTarget) -> FlatRows:
        return cls(storage_target(target))

    @property
    def _has_map_key(self) -> bool:
        return self.target.kind == "map"

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        key = self.target.schema.key
        if not self._has_map_key:
            return key.fields
        return tuple(field for part in key.fields for field in _fields_of(part))

    @cached_property
    def value_fields(self) -> tuple[Field, ...]:
        value = self.target.schema.value
        return (Field(LIST, Array(value)),) if self.target.is_list else value.fields

    @cached_property
    def names(self) -> list[str]:
        """The names of all columns, those of the key first."""
        return distinct([field.name for field in (*self.key_fields, *self.value_fields)])

    @property
    def key_names(self) -> list[str]:
        return self.names[: len(self.key_fields)]

    @property
    def value_names(self) -> list[str]:
        return self.names[len(self.key_fields) :]

    @cached_property
    def types(self) -> Struct:
        """The names and types of all columns."""
        fields = (*self.key_fields, *self.value_fields)
        return Struct(tuple(Field(name, field.type) for name, field in zip(self.names, fields, strict=True)))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(field.name, arrow_type(field.type)) for field in self.types.fields])

    def table(self, reader: StateReader, rows: Records, batch: int) -> pa.Table:
        """Return stored rows, one per key, as a flat table."""
        decoder = reader.decoder(self.target, batch)
        keys = decoder.keys(rows)
        if self.target.is_list:
            _, lists = decoder.list_table(rows, np.zeros(len(rows), np.int32))
            values = [one_array(lists[LIST])]
        else:
            values = decoder.values(rows).flatten()
        columns = [part for one in keys.flatten() for part in one.flatten()] if self._has_map_key else keys.flatten()
        if not self.names:
            return pa.table({})
        return pa.table([*columns, *values], names=self.names)

    def keys(self, table: pa.Table) -> pa.StructArray:
        """Return the stored keys of a flat table."""
        columns = [one_array(table[name]) for name in self.key_names]
        kind = self.target.schema.key
        if self._has_map_key:
            split = len(_fields_of(kind.fields[0]))
            parts = [
                struct_of(_struct(field), group, table.num_rows, None)
                for field, group in zip(kind.fields, (columns[:split], columns[split:]), strict=True)
            ]
            return struct_of(kind, parts, table.num_rows, None)
        return struct_of(kind, columns, table.num_rows, None)

    def values(self, table: pa.Table) -> pa.Array:
        """Return the stored values of a flat table: a struct array, or an array of lists."""
        columns = [one_array(table[name]) for name in self.value_names]
        if self.target.is_list:
            return columns[0]
        return struct_of(self.target.schema.value, columns, table.num_rows, None)

    def conform(self, table: pa.Table, what: str) -> pa.Table:
        """Return a table with exactly the columns and types of the flat table. Raise ``UsageProblem`` if it lacks one."""
        table = table if "key" in self.names else _as_given(table)
        missing = [name for name in self.names if name not in table.column_names]
        unknown = [name for name in table.column_names if name not in self.names and name not in _IGNORED]
        if missing or unknown:
            raise UsageProblem(
                "bad-rows",
                f"{what} does not have the columns of this state",
                evidence={
                    **({"missing": ", ".join(missing)} if missing else {}),
                    **({"unknown": ", ".join(unknown)} if unknown else {}),
                    "columns": ", ".join(self.names),
                },
            )
        columns = [_cast(table[field.name], field, what) for field in self.types.fields]
        return pa.table(columns, names=self.names)


def _cast(column: pa.ChunkedArray, field: Field, what: str) -> pa.ChunkedArray:
    kind = arrow_type(field.type)
    if pa.types.is_timestamp(kind) and kind.tz is not None and pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))  # a time without a zone is in UTC
    problem = "text where bytes are stored"
    try:
        if not (pa.types.is_string(column.type) and pa.types.is_binary(kind)):
            return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        problem = str(error).splitlines()[0]
    raise UsageProblem(
        "bad-rows",
        f"{what} has values in {field.name} that this state cannot contain",
        evidence={"type of the state": kind, "type given": column.type, "reason": problem},
    )


def _as_given(table: pa.Table) -> pa.Table:
    """Return a flat table as it is, and one from ``Checkpoint.state`` with the fields of its keys and values as columns."""
    if "key" not in table.column_names or not pa.types.is_struct(table.schema.field("key").type):
        return table
    return flattened(table, _STRUCTS)


def _struct(field: Field) -> Struct:
    assert isinstance(field.type, Struct)
    return field.type


def _fields_of(field: Field) -> tuple[Field, ...]:
    return _struct(field).fields
