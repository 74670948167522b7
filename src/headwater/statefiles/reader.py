"""State that was read: a table, what it is the state of, and the types that the checkpoint has for its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.state_folder import Recipe
from headwater.core.errors import UsageProblem
from headwater.core.ids import BatchId, StoreKey, version_written_by
from headwater.statefiles.columns import column_types, lists_as_values, present
from headwater.statefiles.keyfilter import KeyFilter
from headwater.statefiles.latest import whole_lists
from headwater.statefiles.partition import TargetStore, recipe_for
from headwater.statefiles.records import Records, one_after_another
from headwater.statefiles.refusals import unknown_format, version_missing
from headwater.statefiles.sqltypes import Field, Struct, distinct
from headwater.statefiles.stores import StateTarget, chosen, targets, the_one

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


_CONF = "spark.sql.streaming.stateStore."
# Smaller parts are decoded together, larger ones without being copied.
_DECODED_ALONE = 20_000


@dataclass(frozen=True)
class StoreSettings:
    """What a batch's configuration says about the bytes of its stores."""

    avro: bool
    row_checksums: bool
    list_joint: int
    partitions: int | None


class StateReader:
    """Reads one checkpoint's state. Listings and logs are read once: make a new one to see newer batches."""

    def __init__(self, files: FileTree) -> None:
        self.files = files
        self.logs = CheckpointLogs(files)
        self.families: dict[str, Mapping[str, int]] = {}
        self._settings: dict[int, StoreSettings] = {}
        self._stores: dict[tuple[int, str, int | None], list[StoreKey]] = {}

    @cached_property
    def committed(self) -> tuple[BatchId, ...]:
        return tuple(BatchId(number) for number in self.logs.commits.ids)

    def latest(self) -> BatchId:
        if not self.committed:
            raise UsageProblem("no-batch", "no batch is committed yet, so there is no state")
        return self.committed[-1]

    def targets(self, batch: int) -> list[StateTarget]:
        return targets(self.logs, batch)

    def settings(self, batch: int) -> StoreSettings:
        if batch not in self._settings:
            entry = self.logs.offsets.get(batch)
            conf = entry.conf if entry else {}
            self._settings[batch] = StoreSettings(
                avro=conf.get(f"{_CONF}encodingFormat", "unsaferow") == "avro",
                row_checksums=conf.get(f"{_CONF}rowChecksum.enabled", "false") == "true",
                list_joint=0 if conf.get(f"{_CONF}rocksdb.mergeOperatorVersion", "1") == "2" else 1,
                partitions=entry.shuffle_partitions if entry else None,
            )
        return self._settings[batch]

    def stores(self, target: StateTarget, batch: int) -> list[StoreKey]:
        """The stores on disk, one for each partition, that hold a target as of a batch."""
        asked = (target.operator_id, target.folder_store, self.settings(batch).partitions)
        if asked not in self._stores:
            self._stores[asked] = [
                key
                for key in self.logs.state.expected(asked[2])
                if key.operator_id == target.operator_id and key.store_name == target.folder_store
            ]
        return self._stores[asked]

    def recipe(self, key: StoreKey, batch: int) -> Recipe:
        """The files to read for a store as of a batch; refused, with what can be read, when one is missing."""
        version = version_written_by(BatchId(batch))
        store = self.logs.state.store(key)
        found = recipe_for(self.files, key.folder, store, version)
        if found is not None:
            return found
        raise version_missing(batch, self._missing_file(key, version), self.readable(key.operator_id))

    def readable(self, operator_id: int | None = None) -> list[BatchId]:
        """The committed batches whose state can be rebuilt, of one operator or of all."""
        return [
            batch
            for batch in self.committed
            if all(
                self.logs.state.store(key).can_build(version_written_by(batch))
                for key in self.logs.state.expected(self.settings(batch).partitions)
                if operator_id is None or key.operator_id == operator_id
            )
        ]

    def _missing_file(self, key: StoreKey, version: int) -> str:
        lacking = self.logs.state.store(key).what_lacks(version) or version
        names = self.logs.state.names.get(key.folder, [])
        whole, changes = ("snapshot", "delta") if is_hdfs_backed(names) else ("zip", "changelog")
        return f"{key.folder}/{lacking}.{changes} (or {lacking}.{whole})"

    def table(self, target: StateTarget, batch: int, keys: KeyFilter | None = None) -> pa.Table:
        """A target's rows as of a batch, in the columns that Spark's ``statestore`` source has for it; of some keys."""
        self._known(batch)
        tables, small, numbers = [], [], [np.zeros(0, np.int32)]
        for key in self.stores(target, batch):
            store = self.store(target, key)
            for rows in store.rows_in_parts(batch) if keys is None else [store.rows(batch, keys)]:
                partitions = np.full(len(rows), key.partition_id, np.int32)
                if len(rows) >= _DECODED_ALONE:
                    tables.append(self.decoded(target, rows, partitions, batch))
                else:
                    small.append(rows)
                    numbers.append(partitions)
        if small or not tables:
            tables.append(self.decoded(target, one_after_another(small), np.concatenate(numbers), batch))
        return pa.concat_tables(tables)

    def answer(self, target: StateTarget, batch: int, keys: KeyFilter | None = None) -> StateAnswer:
        """The same with what it is the state of."""
        table = self.table(target, batch, keys)
        return StateAnswer(target.operator_id, target.store, target.var, column_types(target), table)

    def _known(self, batch: int) -> None:
        if batch not in self.committed:
            held = f"{self.committed[0]} to {self.committed[-1]}" if self.committed else "none"
            raise UsageProblem("no-batch", f"batch {batch} is not committed", evidence={"committed batches": held})

    def decoded(self, target: StateTarget, rows: Records, partitions: np.ndarray, batch: int) -> pa.Table:
        settings = self.settings(batch)
        try:
            return present(target, rows, partitions, settings, hdfs=self.is_hdfs(target))
        except (ValueError, IndexError, pa.ArrowInvalid) as error:
            folder = StoreKey(target.operator_id, 0, target.folder_store).folder
            raise unknown_format(folder, f"holds rows that do not fit {target.schema.path}: {error}") from None

    def whole_values(self, target: StateTarget, rows: Records, batch: int) -> Records:
        """Rows with one value for each key: lists in one piece."""
        if not target.is_list:
            return rows
        settings = self.settings(batch)
        return whole_lists(rows, between=settings.list_joint, before=8 if settings.row_checksums else 0)

    def whole_answer(self, target: StateTarget, rows: Records, partitions: np.ndarray, batch: int) -> StateAnswer:
        """Decoded rows of ``whole_values``: a list is one column, ``list_value``, as in Spark's unflattened view."""
        if not target.is_list:
            table = self.decoded(target, rows, partitions, batch)
            return StateAnswer(target.operator_id, target.store, target.var, column_types(target), table)
        settings = replace(self.settings(batch), list_joint=0, row_checksums=False)
        types, table = lists_as_values(target, rows, partitions, settings, hdfs=self.is_hdfs(target))
        return StateAnswer(target.operator_id, target.store, target.var, types, table)

    def is_hdfs(self, target: StateTarget) -> bool:
        key = StoreKey(target.operator_id, 0, target.folder_store)
        return is_hdfs_backed(self.logs.state.names.get(key.folder, []))

    def store(self, target: StateTarget, key: StoreKey) -> TargetStore:
        return TargetStore(self, target, key)


def is_hdfs_backed(names: list[str]) -> bool:
    return any(name.endswith((".delta", ".snapshot")) for name in names)


def read_state(
    checkpoint_files: FileTree,
    at: int | None = None,
    *,
    operator: int | None = None,
    store: str | None = None,
    var: str | None = None,
) -> pa.Table:
    """One store's or variable's rows as of a batch (the last committed one), as Spark's ``statestore`` source has them."""
    reader = StateReader(checkpoint_files)
    batch = reader.latest() if at is None else at
    target = the_one(chosen(reader.targets(batch), operator=operator, store=store, var=var))
    return reader.table(target, batch)


def read_answers(
    checkpoint_files: FileTree,
    at: int | None = None,
    *,
    operator: int | None = None,
    store: str | None = None,
    var: str | None = None,
) -> list[StateAnswer]:
    """Every store and variable that the words fit; hidden column families only by their names."""
    reader = StateReader(checkpoint_files)
    batch = reader.latest() if at is None else at
    return [
        reader.answer(target, batch)
        for target in chosen(reader.targets(batch), operator=operator, store=store, var=var)
    ]


def state_rows(
    checkpoint_files: FileTree,
    at: int | None = None,
    *,
    operator: int | None = None,
    store: str | None = None,
    var: str | None = None,
) -> list[dict[str, object]]:
    """The same as plain dictionaries: ``operator_id, store, var, partition_id, key, value``."""
    answers = read_answers(checkpoint_files, at, operator=operator, store=store, var=var)
    return [row for answer in answers for row in answer.rows()]
