"""Rewrite the rows of stores as a migration plans it, one partition at a time. Stored keys stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core.errors import ChangeRefused
from headwater.core.ids import StoreKey
from headwater.migration.field_plan import FieldPlan, StorePlan
from headwater.statefiles.buffers import as_mask, as_numbers, nested, numbers, one_array
from headwater.statefiles.flat_rows import LIST, FlatRows
from headwater.statefiles.keyencoder import RowEncoder, storage_target
from headwater.statefiles.partition import PartitionReader
from headwater.statefiles.reader import StateReader
from headwater.statefiles.sqltypes import Struct, arrow_type, distinct
from headwater.statefiles.statewriter import Operation, put
from headwater.statefiles.unsaferow import struct_of
from headwater.timemachine.extra_batch import StoreChange

SAMPLE = 5
Columns = dict[str, dict[str, str]]
Evaluate = Callable[[pa.Table, Mapping[str, str], Columns], pa.Table]
"""Computes SQL expressions, by name, for each row of a table. The columns of old keys and values are given by field."""
Pair = tuple[dict[str, Any], dict[str, Any]]


class RewrittenStores(Mapping[StoreKey, StoreChange]):
    """The rewritten contents of all partitions of some stores, computed when asked for, so that one is in memory.

    ``rows`` and ``sample`` of a store are complete when all of its partitions have been read.
    """

    def __init__(self, reader: StateReader, batch: int, rewrites: Sequence[StoreRewrite]) -> None:
        self._by_store: dict[StoreKey, list[StoreRewrite]] = {}
        for rewrite in rewrites:
            for store in reader.stores(rewrite.plan.old, batch):
                self._by_store.setdefault(store, []).append(rewrite)

    def __getitem__(self, key: StoreKey) -> StoreChange:
        rewrites = self._by_store[key]
        operations = [operation for rewrite in rewrites for operation in rewrite.operations(key)]
        # Spark would read older versions of an HDFS-backed store with the new schema: a snapshot keeps it from that.
        return StoreChange(operations, complete=all(rewrite.is_hdfs_backed for rewrite in rewrites))

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self._by_store)

    def __len__(self) -> int:
        return len(self._by_store)


@dataclass
class StoreRewrite:
    """The rewrite of one store or variable. ``buffers`` are the initial values of each aggregate function."""

    reader: StateReader
    batch: int
    plan: StorePlan
    buffers: Sequence[pa.StructArray]
    evaluate: Evaluate
    rows: int = 0
    sample: tuple[Pair, ...] = ()

    @cached_property
    def _before(self) -> FlatRows:
        return FlatRows.of(self.plan.old)

    @cached_property
    def _after(self) -> FlatRows:
        return FlatRows.of(self.plan.new)

    @property
    def is_hdfs_backed(self) -> bool:
        return self.reader.decoder(self.plan.old, self.batch).hdfs

    @cached_property
    def _encoder(self) -> RowEncoder:
        return RowEncoder(storage_target(self.plan.new), self.reader.settings(self.batch), self.is_hdfs_backed)

    @cached_property
    def _expressions(self) -> dict[str, str]:
        return {one.name: one.expression for one in self.plan.fields if one.expression is not None}

    def operations(self, store: StoreKey) -> list[Operation]:
        """Return puts of all rows of a partition with their new values."""
        target = self._before.target
        partition = self.reader.partition(target, store)
        records = self.reader.one_row_per_key(target, partition.rows(self.batch), self.batch)
        prefix = self._prefix(partition)
        table = self._before.table(self.reader, records, self.batch)
        values = self._lists(table) if target.is_list else self._structs(table)
        encoded = self._encoder.lists(values) if target.is_list else self._encoder.values(values)
        self._note(table, values)
        return [put(prefix + records.key(place), value) for place, value in enumerate(encoded)]

    def _prefix(self, partition: PartitionReader) -> bytes:
        if partition.target.family is not None and partition.family_id(self.batch) is None:
            raise ChangeRefused(
                "cannot-migrate",
                f"{self.plan.old.label} cannot be written",
                evidence={"why": f"no snapshot of {partition.key} names its column family yet"},
                remedy="run the old code for another batch, then try again",
            )
        return partition.key_prefix(self.batch)

    def _structs(self, table: pa.Table) -> pa.StructArray:
        old = [one_array(table[name]) for name in self._before.value_names]
        return self._converted(old, table)

    def _lists(self, table: pa.Table) -> pa.ListArray:
        """Return lists with converted elements. Expressions see the fields of an element beside those of its key."""
        lists = one_array(table[LIST])
        elements = lists.flatten()
        sizes = np.diff(as_numbers(lists.offsets, "<i4"))
        keys = table.select(self._before.key_names).take(numbers(np.repeat(np.arange(table.num_rows), sizes)))
        fields = self._before.target.schema.value.names
        names = distinct([*self._before.key_names, *fields])
        flat = pa.table([*keys.columns, *elements.flatten()], names=names) if names else pa.table({})
        converted = self._converted(elements.flatten(), flat, len(elements))
        return pa.ListArray.from_arrays(numbers(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)), converted)

    def _converted(self, old: list[pa.Array], table: pa.Table, count: int | None = None) -> pa.StructArray:
        count = table.num_rows if count is None else count
        given = self.evaluate(table, self._expressions, self._columns(table)) if self._expressions else None
        columns = [self._column(one, old, given, count) for one in self.plan.value]
        return struct_of(self._after.target.schema.value, columns, count, None)

    def _columns(self, table: pa.Table) -> Columns:
        """Return the columns of an old table by the fields of keys and values; of several with a name, the first."""
        old, names = self._before, table.column_names
        split = len(old.key_names)
        value = old.target.schema.value.names
        return {
            "key": dict(reversed([(one.name.lower(), name) for one, name in zip(old.key_fields, names, strict=False)])),
            "value": dict(reversed([(one.lower(), name) for one, name in zip(value, names[split:], strict=True)])),
            "flat": {name.lower(): name for name in names},
        }

    def _column(self, one: FieldPlan, old: list[pa.Array], given: pa.Table | None, count: int) -> pa.Array:
        """Return the values of a new field."""
        match one.origin:
            case "kept":
                assert one.source is not None
                found = old[one.source]
            case "cast":
                assert one.source is not None
                found = self._cast(one, old[one.source])
            case "nested":
                assert one.source is not None
                assert isinstance(one.type, Struct)
                source = old[one.source]
                parts = [self._column(part, source.flatten(), given, count) for part in one.parts]
                return nested(arrow_type(one.type), count, None, parts, as_mask(source.is_valid()))
            case "initial":
                assert one.buffer is not None
                value = self.buffers[one.buffer.unit].field(one.buffer.place)
                found = value.take(numbers(np.zeros(count, np.int64)))
            case "null":
                found = pa.nulls(count, arrow_type(one.type))
            case "given":
                assert given is not None
                found = self._cast(one, one_array(given[one.name]))
        if not one.nullable and found.null_count:
            raise self._refused(one, f"{one.name} is never null in the new code, and would be for some rows")
        return found

    def _cast(self, one: FieldPlan, column: pa.Array) -> pa.Array:
        kind = arrow_type(one.type)
        if pa.types.is_timestamp(kind) and kind.tz is not None and pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))  # a time without a zone is in UTC
        try:
            return column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise self._refused(
                one, f"not every value for {one.name} is a value of its type", str(error).splitlines()[0]
            ) from None

    def _refused(self, one: FieldPlan, problem: str, why: str | None = None) -> ChangeRefused:
        return ChangeRefused(
            "value-mismatch",
            problem,
            evidence={"state": self.plan.old.label, "type": one.new_type, **({"reason": why} if why else {})},
            remedy=f"--set {one.name}=SQL   (an expression over the old key and value)",
        )

    def _note(self, before: pa.Table, values: pa.Array) -> None:
        """Count rows, and keep some of them before and after."""
        self.rows += before.num_rows
        missing = min(SAMPLE - len(self.sample), before.num_rows)
        if missing <= 0:
            return
        old = before.slice(0, missing)
        keys = [one_array(old[name]) for name in self._before.key_names]
        shown = values.slice(0, missing)
        columns = [shown] if self._before.target.is_list else shown.flatten()
        after = pa.table([*keys, *columns], names=self._after.names)
        self.sample += tuple(zip(old.to_pylist(), after.to_pylist(), strict=True))
