"""A checkpoint's state as of a batch, as Arrow tables. No Spark, and no row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headwater.checkpoint.files import Files
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.state_versions import Recipe
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.core.ids import BatchId, StoreKey, version_written_by
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.codecs import decompress
from headwater.statefiles.columns import column_types, present
from headwater.statefiles.latest import surviving
from headwater.statefiles.lineage import recipe_for
from headwater.statefiles.records import (
    Records,
    one_after_another,
    parse_changelog,
    parse_plain,
    without_row_checksums,
)
from headwater.statefiles.refusals import FormatUnknown, broken_state, unknown_format, version_missing
from headwater.statefiles.stores import StateTarget, targets

_CONF = "spark.sql.streaming.stateStore."


@dataclass(frozen=True)
class StoreSettings:
    """What a batch's configuration says about the bytes of its stores."""

    avro: bool
    row_checksums: bool
    list_joint: int
    partitions: int | None


class StateReader:
    """Reads one checkpoint's state. Listings and logs are read once: make a new one to see newer batches."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.logs = CheckpointLogs(files)
        self._settings: dict[int, StoreSettings] = {}

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
        return [
            key
            for key in self.logs.state.expected(self.settings(batch).partitions)
            if key.operator_id == target.operator_id and key.store_name == target.folder_store
        ]

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
        whole, changes = ("snapshot", "delta") if _is_hdfs(names) else ("zip", "changelog")
        return f"{key.folder}/{lacking}.{changes} (or {lacking}.{whole})"

    def table(self, target: StateTarget, batch: int) -> pa.Table:
        """A target's rows as of a batch, in the columns that Spark's ``statestore`` source has for it."""
        self._known(batch)
        parts, partitions = [], []
        for key in self.stores(target, batch):
            found = self.rows_of(target, key, batch)
            parts.append(found)
            partitions.append(np.full(len(found), key.partition_id, np.int32))
        whole = one_after_another(parts)
        numbers = np.concatenate(partitions) if partitions else np.zeros(0, np.int32)
        return self.decoded(target, whole, numbers, batch)

    def answer(self, target: StateTarget, batch: int) -> StateAnswer:
        """The same with what it is the state of."""
        table = self.table(target, batch)
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

    def is_hdfs(self, target: StateTarget) -> bool:
        key = StoreKey(target.operator_id, 0, target.folder_store)
        return _is_hdfs(self.logs.state.names.get(key.folder, []))

    def rows_of(self, target: StateTarget, key: StoreKey, batch: int) -> Records:
        """The undecoded rows of a target in one partition as of a batch."""
        recipe = self.recipe(key, batch)
        whole = self.store_rows(key, recipe, batch, checksums_in_values=target.is_list)
        return whole if target.family is None else in_family(whole, self.family_id(target, key, recipe))

    def store_rows(self, key: StoreKey, recipe: Recipe, batch: int, *, checksums_in_values: bool = False) -> Records:
        """Everything in one store after a recipe's files, all column families of it."""
        parts = list(self._parts(key, recipe, batch, checksums_in_values=checksums_in_values))
        return surviving(one_after_another(parts))

    def _parts(self, key: StoreKey, recipe: Recipe, batch: int, *, checksums_in_values: bool) -> Iterator[Records]:
        settings = self.settings(batch)
        for name in (recipe.snapshot, *recipe.changes):
            if name is None:
                continue
            path = f"{key.folder}/{name}"
            records = self.file_records(path)
            if settings.row_checksums:
                hdfs = name.endswith((".delta", ".snapshot"))
                records = without_row_checksums(
                    records, hdfs=hdfs, multi_valued=checksums_in_values, deletes_too=not name.endswith(".zip")
                )
            yield records

    def file_records(self, path: str) -> Records:
        """What one state file says."""
        try:
            if path.endswith(".zip"):
                from headwater.statefiles.rocksdb_snapshot import read_snapshot  # noqa: PLC0415  not all stores have one

                return read_snapshot(self.files, path)
            space = decompress(self.files.read(path), path)
            return parse_changelog(space, path) if path.endswith(".changelog") else parse_plain(space, path)
        except FileNotFoundError:
            raise broken_state(path, "is not there any more; a running query may have removed it") from None
        except (FormatUnknown, CheckpointUnreadable):
            raise
        except (ValueError, IndexError) as error:
            raise broken_state(path, f"cannot be read: {error}") from None

    def family_id(self, target: StateTarget, key: StoreKey, recipe: Recipe) -> int:
        """The number before the keys of a column family. Snapshots say it; Spark writes one whenever a family is new."""
        from headwater.statefiles.rocksdb_snapshot import snapshot_families  # noqa: PLC0415  few stores have families

        store = self.logs.state.store(key)
        others = [held.name for version in sorted(store.snapshots, reverse=True) for held in store.snapshots[version]]
        for name in [recipe.snapshot, *others]:
            if name is not None:
                families = snapshot_families(self.files, f"{key.folder}/{name}")
                if target.family is not None and target.family in families:
                    return families[target.family]
        raise unknown_format(key.folder, f"has no snapshot that names the column family {target.family!r}")


def in_family(records: Records, number: int) -> Records:
    """A column family's records, without the number (int16 little-endian) before their keys."""
    chosen = records.take(records.keys.gather("<i2", records.key_start) == number)
    return Records(
        chosen.keys,
        chosen.values,
        chosen.operation,
        chosen.key_start + 2,
        chosen.key_length - 2,
        chosen.value_start,
        chosen.value_length,
        chosen.rank,
    )


def _is_hdfs(names: list[str]) -> bool:
    return any(name.endswith((".delta", ".snapshot")) for name in names)
