"""Write the next version of state stores: what a batch does to each of them, in the form that its offsets and commit name.

The form is that of the last batch, or another one that a migration asks for: another kind of store, or checkpoint format
2. A store in another form cannot build on older versions, so all of its rows are written as a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headwater.checkpoint.log_entries import JOIN_STORES, CommitEntry, OffsetEntry
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.runs import read_runs
from headwater.checkpoint.state_folder import StoreFiles
from headwater.core.errors import ChangeRefused
from headwater.core.ids import DEFAULT_STORE, BatchId, StoreKey, version_written_by
from headwater.statefiles.codecs import decompress
from headwater.statefiles.partition import PartitionReader
from headwater.statefiles.reader import StateReader
from headwater.statefiles.records import PUT, changelog_header
from headwater.statefiles.rocksdb_snapshot import open_snapshot
from headwater.statefiles.statewriter import Operation, changelog_file, plain_file
from headwater.statefiles.stored_rows import list_prefixes, with_row_checksums
from headwater.statefiles.stores import PROVIDER, StateTarget, StoreSettings, find_targets, is_hdfs_backed
from headwater.timemachine.staged_files import StagedFiles

CODEC = "spark.sql.streaming.stateStore.compression.codec"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
HDFS, ROCKSDB = f"{_PACKAGE}.HDFSBackedStateStoreProvider", f"{_PACKAGE}.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class StoreForm:
    """How a batch stores state: in HDFS-backed stores or in RocksDB, and in checkpoint format 1 or 2."""

    hdfs: bool
    unique_ids: bool = False

    @classmethod
    def of(cls, logs: CheckpointLogs, batch: int) -> StoreForm:
        """Return the form of a committed batch."""
        entry = logs.offsets.get(batch)
        hdfs = is_hdfs_backed(entry.conf if entry else {})
        if hdfs is None:
            names = (name for names in logs.state.names.values() for name in names)
            hdfs = any(name.endswith((".delta", ".snapshot")) for name in names)
        return cls(hdfs, logs.commits.read(batch).state_unique_ids is not None)

    @property
    def checkpoint_format(self) -> int:
        return 2 if self.unique_ids else 1

    @property
    def provider(self) -> str:
        """The class that Spark's configuration names."""
        return HDFS if self.hdfs else ROCKSDB


@dataclass(frozen=True)
class StoreChange:
    """What a batch does to one store: operations on keys, which include the id of their column family.

    If ``complete``, the puts are all that the store contains afterwards. On an HDFS-backed store it is then written as
    a snapshot, so that Spark reads no older version. On RocksDB the operations have to delete the keys that vanish, unless
    ``snapshot``: the puts are then written as a snapshot on any store. Operations are read once.
    """

    operations: Iterable[Operation] = ()
    complete: bool = False
    snapshot: bool = False
    origin: StoreKey | None = None
    """The store whose rows these are, if a migration moves them. It names the column families of a snapshot."""
    is_new: bool = False
    """Whether the store belongs to an operator that did not exist before, so that older files in its place do not count."""


@dataclass(frozen=True)
class StoreWriter:
    """Writes the next version of stores after batch ``last`` in a form. Large files are staged."""

    logs: CheckpointLogs
    planned: OffsetEntry
    last: BatchId
    form: StoreForm
    staged: StagedFiles

    @property
    def codec(self) -> str:
        return self.planned.conf.get(CODEC, "lz4")

    def files(self, key: StoreKey, change: StoreChange, unique_id: str | None) -> dict[str, bytes | None]:
        """Write the files of a store's next version. Return their contents by path, None if they are staged."""
        version = version_written_by(BatchId(self.last + 1))
        origin = change.origin or key
        store = StoreFiles() if change.is_new else self.logs.state.store(origin)
        change = replace(change, operations=self._with_checksums(origin, change))
        if self.form.hdfs:
            suffix = "snapshot" if change.complete or change.snapshot else "delta"
            path = f"{key.folder}/{version}.{suffix}"
            return {path: self.staged.put(path, plain_file(change.operations, self.codec))}
        stem = str(version) if unique_id is None else f"{version}_{unique_id}"
        if change.snapshot:
            return self._snapshot(key, origin, store, stem, change)
        lineage = None if unique_id is None else self._lineage(key, store)
        data = changelog_file(change.operations, self.codec, families=self._has_families(key), lineage=lineage)
        path = f"{key.folder}/{stem}.changelog"
        return {path: self.staged.put(path, data)}

    def _with_checksums(self, origin: StoreKey, change: StoreChange) -> Iterable[Operation]:
        """Return the operations with row checksums, if the batch has them."""
        settings = StoreSettings.of(self.planned)
        if not settings.row_checksums:
            return change.operations
        reader = StateReader(self.logs.files)
        own = (
            one
            for one in self._targets
            if (one.operator_id, one.folder_store) == (origin.operator_id, origin.store_name) and one.family is not None
        )
        target = None if change.is_new else next(own, None)
        lists = frozenset[bytes]() if target is None else list_prefixes(reader, target, origin, self.last)
        return with_row_checksums(
            change.operations, hdfs=self.form.hdfs, lists=lists, delimiter=settings.list_delimiter
        )

    def _snapshot(
        self, key: StoreKey, origin: StoreKey, store: StoreFiles, stem: str, change: StoreChange
    ) -> dict[str, bytes | None]:
        from headwater.statefiles.rocksdb_writer import write_snapshot  # noqa: PLC0415  rarely needed

        newest = max((number for number in store.snapshots if _is_zip(store, number)), default=None)
        like = None
        if newest is not None:
            like = open_snapshot(self.logs.files, f"{origin.folder}/{store.snapshots[newest][0].name}").metadata
        elif not change.is_new and self._has_families(origin):
            raise ChangeRefused(
                "cannot-write-state",
                "the state of this checkpoint cannot be written as a snapshot",
                evidence={"why": f"no snapshot of {origin} names its column families yet"},
                remedy="run the job for another batch, then try again",
            )
        rows = ((row_key, value) for kind, row_key, value in change.operations if kind == PUT)
        folder = self.staged.folder / key.folder
        folder.mkdir(parents=True, exist_ok=True)
        paths = [f"{key.folder}/{path}" for path in write_snapshot(folder, stem, rows, like, self._snapshot_version)]
        return {path: self.staged.adopt(path) for path in paths}

    @cached_property
    def _snapshot_version(self) -> int:
        """The version of a snapshot's metadata: Spark 4.0 writes that of the checkpoint format, and reads no other."""
        if not self.form.unique_ids:
            return 1
        recorded = [run.spark for run in read_runs(self.logs.files) if run.spark]
        if recorded:
            return 2 if recorded[-1].startswith("4.0.") else 1
        named = [f"{folder}/{name}" for folder, names in self.logs.state.names.items() for name in names]
        zips = [path for path in named if path.endswith(".zip") and "_" in path.rpartition("/")[2]]
        return open_snapshot(self.logs.files, zips[-1]).version if zips else 1

    def _lineage(self, key: StoreKey, store: StoreFiles) -> list[tuple[int, str]]:
        """Return the versions between the last snapshot and the new version, as the new changelog has to name them."""
        version = version_written_by(self.last)
        commit = self.logs.commits.read(self.last)
        unique_id = commit.unique_id(key)
        if unique_id is None:
            raise ChangeRefused(
                "cannot-write-state",
                "the last commit does not name the state files of all stores",
                evidence={"store": key, "file": self.logs.commits.path(self.last)},
            )
        snapshot = f"{version}_{unique_id}.zip"
        if any(file.name == snapshot for file in store.snapshots.get(version, ())):
            return [(version, unique_id)]
        path = f"{key.folder}/{version}_{unique_id}.changelog"
        header = changelog_header(decompress(self.logs.files.read(path), path), path)
        return [*header.lineage, (version, unique_id)]

    def _has_families(self, key: StoreKey) -> bool:
        return (key.operator_id, key.store_name) in self._stores_with_families

    @cached_property
    def _targets(self) -> list[StateTarget]:
        return find_targets(self.logs, self.last)

    @cached_property
    def _stores_with_families(self) -> set[tuple[int, str]]:
        return {(target.operator_id, target.folder_store) for target in self._targets if target.family is not None}


def _is_zip(store: StoreFiles, version: int) -> bool:
    return store.snapshots[version][0].name.endswith(".zip")


def offsets_with(planned: OffsetEntry, form: StoreForm) -> bytes:
    """Return offsets that name the store of a form in their configuration."""
    if is_hdfs_backed(planned.conf) in (form.hdfs, None):
        return planned.text.to_bytes()
    version, first, *rest = planned.text.lines
    value: dict[str, Any] = json.loads(first)
    value["conf"] = {**value.get("conf", {}), PROVIDER: form.provider}
    lines = (version, json.dumps(value, separators=(",", ":")), *rest)
    return replace(planned.text, lines=lines).to_bytes()


def commit_with(commit: CommitEntry, ids: Mapping[StoreKey, str]) -> bytes:
    """Return a commit of checkpoint format 2 with the ids of the new state files in place of others."""
    version, first, *rest = commit.text.lines if len(commit.text.lines) > 1 else (*commit.text.lines, "{}")
    value: dict[str, Any] = json.loads(first)
    operators = sorted({key.operator_id for key in ids})
    value["stateUniqueIds"] = {str(operator): _ids_of_operator(operator, ids) for operator in operators}
    lines = (version if commit.version > 1 else "v2", json.dumps(value, separators=(",", ":")), *rest)
    return replace(commit.text, lines=lines).to_bytes()


def _ids_of_operator(operator: int, ids: Mapping[StoreKey, str]) -> list[list[str]]:
    """Return the ids of each partition, those of a join in the order of its stores."""
    found: dict[int, dict[str, str]] = {}
    for key, unique_id in ids.items():
        if key.operator_id == operator:
            found.setdefault(key.partition_id, {})[key.store_name] = unique_id
    names: Sequence[str] = (DEFAULT_STORE,) if DEFAULT_STORE in found[0] else JOIN_STORES
    return [[found[number][name] for name in names] for number in sorted(found)]


def prefix_of_new_keys(partition: PartitionReader, batch: int, code: str, label: str) -> bytes:
    """Return what precedes keys that a change writes; refuse the change if no snapshot tells."""
    if partition.target.family is not None and partition.family_id(batch) is None:
        raise ChangeRefused(
            code,
            f"{label} cannot be written",
            evidence={"why": f"no snapshot of {partition.key} names its column family yet"},
            remedy="run the job, with the code of its last run, for another batch, then try again",
        )
    return partition.key_prefix(batch)
