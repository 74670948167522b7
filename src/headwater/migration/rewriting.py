"""Rewrite the rows of stores as a migration plans it.

Stored keys stay as they are, and one partition at a time is rewritten, a large one in parts. If the key itself changes,
its rows may go to other partitions: ``rekeyed_rows`` sorts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.ids import StoreKey
from headwater.core.text import count
from headwater.migration.field_plan import FieldPlan, RequestedFields, StorePlan
from headwater.migration.rekeyed_rows import Columns, Merge, RekeyedRows, may_drop_equal_rows, merge_rules
from headwater.statefiles.buffers import as_mask, as_numbers, nested, numbers, one_array
from headwater.statefiles.flat_rows import LIST, FlatRows
from headwater.statefiles.keyencoder import RowEncoder, storage_target
from headwater.statefiles.partition import PartitionReader
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import PUT, Records, records_of
from headwater.statefiles.sqltypes import Struct, arrow_type, distinct
from headwater.statefiles.statewriter import Operation, put
from headwater.statefiles.unsaferow import struct_of
from headwater.timemachine.store_files import StoreChange, prefix_of_new_keys

SAMPLE = 5
_MERGED_AT_ONCE = 50_000
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
        operations = (operation for rewrite in rewrites for operation in rewrite.operations(key))
        # Spark would read older versions of an HDFS-backed store with the new schema: a snapshot keeps it from that. One
        # of RocksDB has no rows under the old keys.
        rekeyed = any(rewrite.plan.keys is not None for rewrite in rewrites)
        return StoreChange(operations, complete=all(one.is_hdfs_backed for one in rewrites), snapshot=rekeyed)

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
    rules: Mapping[str, str] = field(default_factory=dict)
    """For each field of the values, how rows that end up with the same key are merged."""
    merge: Merge | None = None
    rows: int = 0
    merged: int = 0
    """How many rows were merged into another one."""
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

    def operations(self, store: StoreKey) -> Iterator[Operation]:
        """Yield puts of all rows of a partition with their new values."""
        if self.plan.keys is not None:
            yield from self._with_new_keys(store.partition_id)
            return
        target = self._before.target
        prefix = self._prefix(self.reader.partition(target, store))
        for records, table in self._parts(store):
            values = self._lists(table) if target.is_list else self._structs(table)
            encoded = self._encoder.lists(values) if target.is_list else self._encoder.values(values)
            keys = [one_array(table[name]) for name in self._before.key_names]
            self._note(table, keys, values)
            for (key, _), value in zip(records.pairs(), encoded, strict=True):
                yield put(prefix + key, value)

    def _parts(self, store: StoreKey) -> Iterator[tuple[Records, pa.Table]]:
        """Yield the rows of a partition, in parts if it is large: as they are stored, and decoded."""
        target = self._before.target
        partition = self.reader.partition(target, store)
        large = None if target.is_list else partition.large_parts(self.batch)
        for rows in [partition.rows(self.batch)] if large is None else (part() for part in large):
            records = self.reader.one_row_per_key(target, rows, self.batch)
            yield records, self._before.table(self.reader, records, self.batch)

    @cached_property
    def _rekeyed(self) -> RekeyedRows:
        """The rows of all partitions under their new keys."""
        stores = self.reader.stores(self._before.target, self.batch)
        found = RekeyedRows()
        for store in stores:
            for _, table in self._parts(store):
                columns = self._new_keys(table)
                keys = struct_of(self._after.target.schema.key, columns, table.num_rows, None)
                old = [one_array(table[name]) for name in self._before.value_names]
                values = self._converted(old, table, keys=columns)
                self._note(table, columns, values)
                places = self._encoder.partitions(keys, len(stores)).tolist()
                found.add(zip(places, self._encoder.keys(keys), self._encoder.values(values), strict=True))
        return found

    def _with_new_keys(self, partition: int) -> Iterator[Operation]:
        """Yield puts of the rows that belong to a partition now. Rows that end up with the same key are merged."""
        colliding: list[tuple[bytes, list[bytes]]] = []
        rows = 0
        same = may_drop_equal_rows(self.plan.new)
        for key, values in self._rekeyed.groups(partition):
            if len(values) == 1 or (same and not self.rules and len(set(values)) == 1):
                yield put(key, values[0])
                continue
            if not self.rules:
                raise self._collapsed()
            colliding.append((key, values))
            rows += len(values)
            if rows >= _MERGED_AT_ONCE:
                yield from self._merged(colliding)
                colliding, rows = [], 0
        if colliding:
            yield from self._merged(colliding)

    def _merged(self, groups: list[tuple[bytes, list[bytes]]]) -> Iterator[Operation]:
        assert self.merge is not None
        pairs = [(key, value) for key, values in groups for value in values]
        sizes = [len(values) for _, values in groups]
        self.merged += len(pairs) - len(groups)
        kinds = np.full(len(pairs), PUT, np.uint8)
        records = records_of([key for key, _ in pairs], [value for _, value in pairs], kinds, np.arange(len(pairs)))
        table = self._after.table(self.reader, records, self.batch)
        number = np.repeat(np.arange(len(groups)), sizes)
        first = table.take(numbers(np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)))
        names = self._after.value_names
        copied = [name for one, name in zip(self.plan.value, names, strict=True) if one.origin == "key"]
        rules = merge_rules(self.rules, names, copied)
        found = self.merge(table, number, rules, self._columns_of(self._after, table))
        columns = []
        for one, name in zip(self.plan.value, names, strict=True):
            column = one_array((found if name in rules else first)[name])
            columns.append(column if column.type == arrow_type(one.type) else self._cast(one, column))
        values = self._encoder.values(struct_of(self._after.target.schema.value, columns, len(groups), None))
        return (put(key, value) for (key, _), value in zip(groups, values, strict=True))

    def _collapsed(self) -> ChangeRefused:
        stores = self.reader.stores(self._before.target, self.batch)
        groups = (values for store in stores for _, values in self._rekeyed.groups(store.partition_id))
        collapsed = sum(len(values) - 1 for values in groups)
        names = self._after.value_names
        return ChangeRefused(
            "keys-collapse",
            f"{count(collapsed, 'row')} would have the key of another row",
            evidence={"state": self.plan.old.label, "keys": ", ".join(self.plan.keys or ())},
            remedy=f"merge them: --merge {names[0] if names else 'FIELD'}=sum for each field of the values (or min, max, "
            "any SQL aggregate), or use expressions that keep the rows distinct",
        )

    def _new_keys(self, table: pa.Table) -> list[pa.Array]:
        """Return the fields of the new key. The name of an old column is that column, exactly as it is."""
        texts = [text.strip() for text in self.plan.keys or ()]
        names = [text[1:-1] if text.startswith('"') and text.endswith('"') else text for text in texts]
        asked = {f"key {at}": text for at, text in enumerate(texts) if names[at] not in table.column_names}
        given = self.evaluate(table, asked, self._columns(table)) if asked else None
        found = []
        for at, one in enumerate(self._after.target.schema.key.fields):
            column = table[names[at]] if given is None or f"key {at}" not in asked else given[f"key {at}"]
            plan = FieldPlan(one.name, one.type, True, "given", new_type=str(arrow_type(one.type)))
            same = column.type == arrow_type(one.type)
            found.append(one_array(column) if same else self._cast(plan, one_array(column)))
        return found

    def _prefix(self, partition: PartitionReader) -> bytes:
        return prefix_of_new_keys(partition, self.batch, "cannot-migrate", self.plan.old.label)

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

    def _converted(
        self, old: list[pa.Array], table: pa.Table, rows: int | None = None, keys: Sequence[pa.Array] = ()
    ) -> pa.StructArray:
        size = table.num_rows if rows is None else rows
        given = self.evaluate(table, self._expressions, self._columns(table)) if self._expressions else None
        columns = [
            keys[one.source] if one.origin == "key" and one.source is not None else self._column(one, old, given, size)
            for one in self.plan.value
        ]
        return struct_of(self._after.target.schema.value, columns, size, None)

    def _columns(self, table: pa.Table) -> Columns:
        return self._columns_of(self._before, table)

    @staticmethod
    def _columns_of(rows: FlatRows, table: pa.Table) -> Columns:
        """Return the columns of a table by the fields of keys and values; of several with a name, the first."""
        names = table.column_names
        split = len(rows.key_names)
        value = rows.target.schema.value.names
        keys = zip(rows.key_fields, names, strict=False)
        return {
            "key": dict(reversed([(one.name.lower(), name) for one, name in keys])),
            "value": dict(reversed([(one.lower(), name) for one, name in zip(value, names[split:], strict=True)])),
            "flat": {name.lower(): name for name in names},
        }

    def _column(self, one: FieldPlan, old: list[pa.Array], given: pa.Table | None, size: int) -> pa.Array:
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
                parts = [self._column(part, source.flatten(), given, size) for part in one.parts]
                return nested(arrow_type(one.type), size, None, parts, as_mask(source.is_valid()))
            case "initial":
                assert one.buffer is not None
                value = self.buffers[one.buffer.unit].field(one.buffer.place)
                found = value.take(numbers(np.zeros(size, np.int64)))
            case "null":
                found = pa.nulls(size, arrow_type(one.type))
            case "given" | "key":
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
                one, f"the type of {one.name} cannot represent every value", str(error).splitlines()[0]
            ) from None

    def _refused(self, one: FieldPlan, problem: str, why: str | None = None) -> ChangeRefused:
        return ChangeRefused(
            "value-mismatch",
            problem,
            evidence={"state": self.plan.old.label, "type": one.new_type, **({"reason": why} if why else {})},
            remedy=f"--set {one.name}=SQL   (an expression over the old key and value)",
        )

    def _note(self, before: pa.Table, keys: Sequence[pa.Array], values: pa.Array) -> None:
        """Count rows, and keep some of them before and after."""
        self.rows += before.num_rows
        missing = min(SAMPLE - len(self.sample), before.num_rows)
        if missing <= 0:
            return
        old = before.slice(0, missing)
        shown = values.slice(0, missing)
        columns = [shown] if self._before.target.is_list else shown.flatten()
        after = pa.table([*(key.slice(0, missing) for key in keys), *columns], names=self._after.names)
        self.sample += tuple(zip(old.to_pylist(), after.to_pylist(), strict=True))


def rekeyed(rewrites: list[StoreRewrite], requested: RequestedFields) -> list[StoreRewrite]:
    """Return the rewrite that ``--merge`` is about, if it was given. Raise ``UsageProblem`` if no key changes."""
    found = [one for one in rewrites if one.plan.keys is not None] if requested.merge else []
    if requested.merge and not found:
        raise UsageProblem(
            "bad-option", "--merge is for rows that end up with the same key, but no key changes", remedy='--keys "SQL"'
        )
    return found
