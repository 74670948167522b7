"""The rows of one store or variable of a state, in the forms that callers need: Arrow columns, flat columns, dictionaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.statefiles.columns import PARTITION, flattened
from headwater.statefiles.sqltypes import Field, Struct
from headwater.statefiles.stores import StateTarget


@dataclass(frozen=True)
class StateAnswer:
    """The rows of one store or variable, in the columns of Spark's reader: ``key``, the values, ``partition_id``."""

    operator_id: int
    store: str
    var: str | None
    types: Struct
    table: pa.Table

    @classmethod
    def of(cls, target: StateTarget, types: Struct, table: pa.Table) -> StateAnswer:
        """Return the rows of a target."""
        return cls(target.operator_id, target.store, target.var, types, table)

    @property
    def value_type(self) -> Struct:
        """The type of ``value``: Spark's column of that name, or its other columns together."""
        others = [field for field in self.types.fields if field.name not in ("key", PARTITION)]
        if len(others) == 1 and others[0].name == "value" and isinstance(others[0].type, Struct):
            return others[0].type
        return Struct(tuple(others))

    @property
    def key_type(self) -> Struct:
        """The type of ``key``; a key that is not a struct is the only field of one."""
        key = self.types.fields[0].type
        return key if isinstance(key, Struct) else Struct((Field("key", key),))

    def keyed(self) -> pa.Table:
        """Return the rows as three columns: ``key``, ``value`` and ``partition_id``."""
        if self.table.column_names == ["key", "value", PARTITION]:
            return self.table
        names = [name for name in self.table.column_names if name not in ("key", PARTITION)]
        chunks = [
            pa.StructArray.from_arrays([batch.column(name) for name in names], names)
            for batch in self.table.to_batches()
        ]
        kind = pa.struct([self.table.schema.field(name) for name in names])
        value = pa.chunked_array(chunks, kind)
        return pa.table({"key": self.table["key"], "value": value, PARTITION: self.table[PARTITION]})

    def flat(self) -> pa.Table:
        """Return the fields of key and value as columns with unique names, for SQL and files."""
        return flattened(self.table, self.table.column_names)

    def with_table(self, table: pa.Table) -> StateAnswer:
        """Return the same store or variable with other rows."""
        return replace(self, table=table)

    def rows(self) -> list[dict[str, object]]:
        """Return plain dictionaries with Python values; a duplicate name within a struct has a suffix."""
        keyed = self.keyed()
        return [
            {
                "operator_id": self.operator_id,
                "store": self.store,
                "var": self.var,
                PARTITION: partition,
                "key": key,
                "value": value,
            }
            for key, value, partition in zip(
                *(keyed[name].to_pylist() for name in ("key", "value", PARTITION)), strict=True
            )
        ]


def rows_of(answers: Iterable[StateAnswer]) -> list[dict[str, object]]:
    """Return the rows of several stores and variables as plain dictionaries."""
    return [row for answer in answers for row in answer.rows()]
