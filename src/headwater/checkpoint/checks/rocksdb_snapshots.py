"""Each RocksDB snapshot can be opened, and the files that it refers to exist with the recorded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.checks.unreadable_files import finding_of
from headwater.checkpoint.layout import LOG_FOLDER, SST_FOLDER
from headwater.checkpoint.logtext import read_bytes
from headwater.checkpoint.rocksdb_zip import SnapshotFile, open_snapshot_zip
from headwater.checkpoint.state_folder import StoreFiles
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding
from headwater.core.ids import StoreKey


def check(context: CheckContext) -> Iterator[Finding]:
    for key, store in context.logs.present_state.stores.items():
        if zips := _zips(store):
            yield from _store(context, key, store, zips)


def files_in_use(context: CheckContext, key: StoreKey) -> frozenset[str] | None:
    """Return the paths of the files that a store's snapshots refer to; None if one of the snapshots cannot be read."""
    used: set[str] = set()
    for name in _zips(context.logs.present_state.stores[key]):
        path = f"{key.folder}/{name}"
        try:
            snapshot = open_snapshot_zip(read_bytes(context.files, path), path)
        except CheckpointUnreadable:
            return None
        used |= {f"{key.folder}/{file.path}" for file in snapshot.files}
    return frozenset(used)


def _zips(store: StoreFiles) -> list[str]:
    return sorted(file.name for files in store.snapshots.values() for file in files if file.name.endswith(".zip"))


def _store(context: CheckContext, key: StoreKey, store: StoreFiles, zips: list[str]) -> Iterator[Finding]:
    used: set[str] = set()
    all_read = True
    for name in zips:
        path = f"{key.folder}/{name}"
        try:
            snapshot = open_snapshot_zip(read_bytes(context.files, path), path)
            snapshot.verify()
        except CheckpointUnreadable as error:
            all_read = False
            yield finding_of(error, path)
            continue
        used |= {file.path for file in snapshot.files}
        yield from _missing(context, key, snapshot.files, path, in_use=_in_use(store, name))
    if all_read:
        yield from _orphans(context, key, used)


def _in_use(store: StoreFiles, name: str) -> bool:
    """Return whether Spark reads a snapshot; in format 2 it ignores one whose id is in no commit."""
    return any((valid := store.snapshot_at(version)) and valid.name == name for version in store.snapshots)


def _missing(
    context: CheckContext, key: StoreKey, files: Iterable[SnapshotFile], path: str, *, in_use: bool
) -> Iterator[Finding]:
    for file in files:
        entry = context.entry(f"{key.folder}/{file.path}")
        if entry is None:
            message = f"refers to {file.path}, which does not exist: this snapshot cannot be loaded"
            yield Finding("error" if in_use else "info", "sst-missing", path, message)
        elif entry.size != file.size:
            message = f"has {entry.size} bytes, but {path} records {file.size}"
            yield Finding("error" if in_use else "info", "sst-size", f"{key.folder}/{file.path}", message)


def _orphans(context: CheckContext, key: StoreKey, used: set[str]) -> Iterator[Finding]:
    for folder in (SST_FOLDER, LOG_FOLDER):
        for name in context.tree.get(f"{key.folder}/{folder}", ()):
            if not name.startswith(".") and f"{folder}/{name}" not in used:
                message = "is not used by any snapshot; Spark's maintenance task will remove it"
                yield Finding("info", "sst-orphan", f"{key.folder}/{folder}/{name}", message)
