"""State that was read: a table, what it is the state of, and the types that the checkpoint has for its columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.statefiles.sqltypes import Field, Struct, distinct

PARTITION = "partition_id"


@dataclass(frozen=True)
class StateAnswer:
    """The rows of one store or variable. Columns are those of Spark's reader: ``key``, its values, ``partition_id``."""

    operator_id: int
    store: str
    var: str | None
    types: Struct
    table: pa.Table

    @property
    def value_type(self) -> Struct:
        """What ``value`` is: Spark's own column of that name, or its other columns together."""
        others = [field for field in self.types.fields if field.name not in ("key", PARTITION)]
        if len(others) == 1 and others[0].name == "value" and isinstance(others[0].type, Struct):
            return others[0].type
        return Struct(tuple(others))

    @property
    def key_type(self) -> Struct:
        key = self.types.fields[0].type
        return key if isinstance(key, Struct) else Struct((Field("key", key),))

    def keyed(self) -> pa.Table:
        """The rows as three columns: ``key``, ``value`` and ``partition_id``."""
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
        """The fields of key and value as columns of their own, each with a name of its own, for SQL and files."""
        columns, names = [], []
        for name, column in zip(self.table.column_names, self.table.columns, strict=True):
            if pa.types.is_struct(column.type) and name != PARTITION:
                whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
                columns += whole.flatten()
                names += [field.name for field in column.type]
            else:
                columns.append(column)
                names.append(name)
        return pa.table(columns, names=distinct(names))

    def with_table(self, table: pa.Table) -> StateAnswer:
        return replace(self, table=table)

    def rows(self) -> list[dict[str, object]]:
        """Plain dictionaries with Python values; a name that repeats within a struct has a suffix."""
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
