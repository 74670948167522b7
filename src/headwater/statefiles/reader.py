"""Read the state of a checkpoint as of a batch, as Arrow tables with the types that the checkpoint records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.state_folder import Recipe
from headwater.core.errors import UsageProblem
from headwater.core.ids import (
    ANY_STORE,
    BatchId,
    StateVersion,
    StoreKey,
    StoreRef,
    batch_that_wrote,
    version_written_by,
)
from headwater.statefiles.answer import StateAnswer, rows_of
from headwater.statefiles.columns import RowDecoder, column_types
from headwater.statefiles.key_lookup import KeyFilter
from headwater.statefiles.list_state import joined_lists
from headwater.statefiles.partition import PartitionReader, recipe_for
from headwater.statefiles.records import Records, concat_ranked
from headwater.statefiles.refusals import unknown_format, version_missing
from headwater.statefiles.stores import (
    GivenSchema,
    StateTarget,
    StoreSettings,
    find_targets,
    select,
    select_one,
)
from headwater.statefiles.threads import in_order

if TYPE_CHECKING:
    from headwater.statefiles.sst_file import TableFile

# Smaller parts are decoded together, larger ones without being copied.
_DECODED_ALONE = 20_000
_DECODED_TOGETHER = 200_000


def read_state(
    files: FileTree, at: int | None = None, ref: StoreRef = ANY_STORE, schema: str | None = None
) -> pa.Table:
    """Return the rows of one store or variable as of a batch, by default the last committed one.

    The columns are those of Spark's ``statestore`` source. ``schema`` describes a store that has no schema file.
    """
    reader = StateReader(files, None if schema is None else GivenSchema.parse(schema, ref))
    batch = reader.latest() if at is None else at
    return reader.table(select_one(reader.targets(batch), ref), batch)


def read_answers(
    files: FileTree, at: int | None = None, ref: StoreRef = ANY_STORE, schema: str | None = None
) -> list[StateAnswer]:
    """Return every store and variable that a reference matches; hidden column families only if named."""
    reader = StateReader(files, None if schema is None else GivenSchema.parse(schema, ref))
    batch = reader.latest() if at is None else at
    return [reader.answer(target, batch) for target in select(reader.targets(batch), ref)]


def state_rows(files: FileTree, at: int | None = None, ref: StoreRef = ANY_STORE) -> list[dict[str, object]]:
    """Return state as plain dictionaries: ``operator_id, store, var, partition_id, key, value``."""
    return rows_of(read_answers(files, at, ref))


class StateReader:
    """Reads the state of one checkpoint. It reads listings and logs once; create a new one to see newer batches.

    ``given`` is the schema of a store that has no schema file.
    """

    def __init__(self, files: FileTree, given: GivenSchema | None = None) -> None:
        self.given = given
        self.logs = CheckpointLogs(files)
        self.families: dict[str, Mapping[str, int]] = {}
        self._tables: dict[str, list[TableFile]] = {}
        self._table_by_path: dict[str, TableFile] = {}
        self._settings: dict[int, StoreSettings] = {}
        self._stores: dict[tuple[int, str, int | None, int], list[StoreKey]] = {}

    @property
    def files(self) -> FileTree:
        """The checkpoint, with the state of removed operators at the paths that it had."""
        return self.logs.state_files

    @cached_property
    def committed(self) -> tuple[BatchId, ...]:
        """The committed batches, oldest first."""
        return tuple(BatchId(number) for number in self.logs.commits.ids)

    def latest(self) -> BatchId:
        """Return the last committed batch. Raise ``UsageProblem`` if there is none."""
        if not self.committed:
            raise UsageProblem("no-batch", "no batch is committed yet, so there is no state")
        return self.committed[-1]

    def readable(self, operator_id: int | None = None) -> list[BatchId]:
        """Return the committed batches whose state can be rebuilt, for one operator or for all."""
        return [
            batch
            for batch in self.committed
            # Without its offsets, a batch of a restore point does not show how its state is encoded.
            if (batch in self.logs.offsets.entries or not self.logs.offsets.entries)
            and all(
                self.logs.state.store(key).can_build(version_written_by(batch))
                for key in self.logs.expected_stores(batch)
                if operator_id is None or key.operator_id == operator_id
            )
        ]

    def is_repartitioned(self, batch: int) -> bool:
        """Return whether a batch changed the number of partitions: its files of changes then have all rows of a store."""
        before, after = (self.settings(number).partitions for number in (batch - 1, batch))
        return None not in (before, after) and before != after

    def targets(self, batch: int) -> list[StateTarget]:
        """Return everything that can be read as of a batch."""
        return find_targets(self.logs, batch, self.given)

    def in_same_form(self, target: StateTarget, batches: Iterable[int]) -> list[BatchId]:
        """Return the batches in which a target has the schema that it is given with. A migration changes the schema."""
        periods: dict[int, bool] = {}
        kept = []
        for batch in batches:
            period = self.logs.former.period(batch) if self.logs.former.paths else -1
            if period not in periods:
                periods[period] = period < 0 or self._has_form(target, batch)
            if periods[period]:
                kept.append(BatchId(batch))
        return kept

    def _has_form(self, target: StateTarget, batch: int) -> bool:
        same = (
            (one.schema.key, one.schema.value)
            for one in self.targets(batch)
            if (one.operator_id, one.store, one.var) == (target.operator_id, target.store, target.var)
        )
        return next(same, None) == (target.schema.key, target.schema.value)

    def answer(self, target: StateTarget, batch: int, keys: KeyFilter | None = None) -> StateAnswer:
        """Return a target's rows as of a batch, of all keys or of those that a filter selects, with their types."""
        return StateAnswer.of(target, column_types(target), self.table(target, batch, keys))

    def answers_in_parts(self, target: StateTarget, batch: int, keys: KeyFilter | None = None) -> Iterator[StateAnswer]:
        """Yield the same in parts of bounded size, at least one."""
        types = column_types(target)
        for table in self.pieces(target, batch, keys):
            yield StateAnswer.of(target, types, table)

    def table(self, target: StateTarget, batch: int, keys: KeyFilter | None = None) -> pa.Table:
        """Return a target's rows as of a batch, in the columns of Spark's ``statestore`` source."""
        return pa.concat_tables(self.pieces(target, batch, keys))

    def pieces(self, target: StateTarget, batch: int, keys: KeyFilter | None = None) -> Iterator[pa.Table]:
        """Yield a target's rows as of a batch in tables of bounded size, at least one; large stores on several cores."""
        self._refuse_uncommitted(batch)
        if keys is not None:
            yield self._decoded_together(target, self._matching(target, batch, keys), batch)
            return
        small: list[tuple[Records, int]] = []
        found = False
        for piece in in_order(self._decoding(target, batch, small)):
            found = True
            yield piece
        if small or not found:
            yield self._decoded_together(target, small, batch)

    def _decoding(
        self, target: StateTarget, batch: int, small: list[tuple[Records, int]]
    ) -> Iterator[Callable[[], pa.Table]]:
        """Yield functions that each decode a part of the rows. Append parts that are too small for it to ``small``."""
        waiting = 0

        def decoded(part: Callable[[], Records], partition: int) -> pa.Table:
            rows = part()
            return self.decode(target, rows, np.full(len(rows), partition, np.int32), batch)

        for key in self.stores(target, batch):
            store = self.partition(target, key)
            large = store.large_parts(batch)
            if large is not None:
                for part in large:
                    yield partial(decoded, part, key.partition_id)
                continue
            for rows in store.rows_in_parts(batch):
                if len(rows) >= _DECODED_ALONE:
                    yield partial(decoded, partial(_itself, rows), key.partition_id)
                    continue
                small.append((rows, key.partition_id))
                waiting += len(rows)
            if waiting > _DECODED_TOGETHER:
                yield partial(self._decoded_together, target, list(small), batch)
                small.clear()
                waiting = 0

    def _decoded_together(self, target: StateTarget, parts: list[tuple[Records, int]], batch: int) -> pa.Table:
        numbers = [np.full(len(rows), partition, np.int32) for rows, partition in parts]
        rows = concat_ranked([rows for rows, _ in parts])
        return self.decode(target, rows, np.concatenate([*numbers, np.zeros(0, np.int32)]), batch)

    def _matching(self, target: StateTarget, batch: int, keys: KeyFilter) -> list[tuple[Records, int]]:
        """Return the rows that a filter selects, by partition. A key that is known is in one partition only."""
        stores = self.stores(target, batch)
        likely = keys.partition_of(len(stores)) if len(stores) > 1 else None
        if likely is not None:
            # Spark puts a key into the partition that its hash names. Others are searched only if it is not there.
            for key in stores:
                if key.partition_id == likely and len(rows := self.partition(target, key).rows(batch, keys)):
                    return [(rows, likely)]
        return [(self.partition(target, key).rows(batch, keys), key.partition_id) for key in stores]

    def stores(self, target: StateTarget, batch: int) -> list[StoreKey]:
        """Return the stores on disk, one per partition, that contain a target as of a batch."""
        period = self.logs.former.period(batch)
        wanted = (target.operator_id, target.folder_store, self.settings(batch).partitions, period)
        if wanted not in self._stores:
            self._stores[wanted] = [
                key
                for key in self.logs.expected_stores(batch)
                if key.operator_id == target.operator_id and key.store_name == target.folder_store
            ]
        return self._stores[wanted]

    def partition(self, target: StateTarget, key: StoreKey) -> PartitionReader:
        """Return a reader for a target's undecoded records in one store."""
        return PartitionReader(self, target, key)

    def table_files(self, path: str) -> list[TableFile]:
        """Return the table files of a RocksDB snapshot. They never change, and their indexes are read once."""
        from headwater.statefiles.rocksdb_snapshot import table_files  # noqa: PLC0415  not every store has one

        if path not in self._tables:
            found = table_files(self.files, path)
            self._tables[path] = [self._table_by_path.setdefault(table.path, table) for table in found]
        return self._tables[path]

    def settings(self, batch: int) -> StoreSettings:
        """Return the settings with which a batch wrote its state."""
        if batch not in self._settings:
            self._settings[batch] = StoreSettings.of(self.logs.offsets.get(batch))
        return self._settings[batch]

    def recipe(self, key: StoreKey, batch: int) -> Recipe:
        """Return the files to read for a store as of a batch. Raise ``StateVersionMissing`` if one is missing."""
        version = version_written_by(BatchId(batch))
        found = recipe_for(self.files, key.folder, self.logs.state.store(key), version)
        if found is None:
            raise version_missing(batch, self._missing_file(key, version), self.readable(key.operator_id))
        return found

    def decoder(self, target: StateTarget, batch: int) -> RowDecoder:
        """Return a decoder for a target's rows as a batch wrote them."""
        return RowDecoder(target, self.settings(batch), hdfs=self._is_hdfs_backed(_first_folder(target), batch))

    def decode(self, target: StateTarget, rows: Records, partitions: np.ndarray, batch: int) -> pa.Table:
        """Return undecoded rows as a table. Raise ``UnknownFormat`` if they do not match the target's schema."""
        with _rows_of(target):
            return self.decoder(target, batch).table(rows, partitions)

    def one_row_per_key(self, target: StateTarget, rows: Records, batch: int) -> Records:
        """Return undecoded rows with the parts of each list joined."""
        if not target.is_list:
            return rows
        settings = self.settings(batch)
        with _rows_of(target):
            return joined_lists(rows, delimiter=settings.list_delimiter, header=settings.list_header)

    def answer_per_key(self, target: StateTarget, rows: Records, partitions: np.ndarray, batch: int) -> StateAnswer:
        """Return decoded rows of ``one_row_per_key``; a list is one column, ``list_value``."""
        if not target.is_list:
            return StateAnswer.of(target, column_types(target), self.decode(target, rows, partitions, batch))
        with _rows_of(target):
            return StateAnswer.of(target, *self.decoder(target, batch).list_table(rows, partitions))

    def _refuse_uncommitted(self, batch: int) -> None:
        if batch not in self.committed:
            known = f"{self.committed[0]} to {self.committed[-1]}" if self.committed else "none"
            raise UsageProblem("no-batch", f"batch {batch} is not committed", evidence={"committed batches": known})

    def _missing_file(self, key: StoreKey, version: int) -> str:
        missing = self.logs.state.store(key).missing_version(version) or version
        hdfs = self._is_hdfs_backed(key.folder, batch_that_wrote(StateVersion(version)))
        snapshot, changes = ("snapshot", "delta") if hdfs else ("zip", "changelog")
        return f"{key.folder}/{missing}.{changes} (or {missing}.{snapshot})"

    def _is_hdfs_backed(self, folder: str, batch: int) -> bool:
        """Return whether a batch wrote HDFS-backed stores. A migration between stores leaves files of both kinds."""
        recorded = self.settings(batch).hdfs
        if recorded is not None:
            return recorded
        return any(name.endswith((".delta", ".snapshot")) for name in self.logs.state.names.get(folder, []))


def _itself(rows: Records) -> Records:
    return rows


def _first_folder(target: StateTarget) -> str:
    return StoreKey(target.operator_id, 0, target.folder_store).folder


@contextmanager
def _rows_of(target: StateTarget) -> Iterator[None]:
    """Turn the failure to decode a target's rows into ``UnknownFormat``."""
    try:
        yield
    except (ValueError, IndexError, pa.ArrowInvalid) as error:
        if target.has_given_schema:
            raise UsageProblem(
                "bad-schema",
                f"the rows of {_first_folder(target)} do not match --schema",
                evidence={"reason": error},
                remedy="omit --schema to see the rows as bytes",
            ) from None
        what = f"has rows that do not match {target.schema.path}: {error}"
        raise unknown_format(_first_folder(target), what) from None
