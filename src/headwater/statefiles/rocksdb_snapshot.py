"""RocksDB snapshots: ``V.zip`` with RocksDB's small files, and the table files under ``SSTs/`` that it refers to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import join, parent_and_name
from headwater.checkpoint.rocksdb_zip import SnapshotFile, SnapshotZip, open_snapshot_zip
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.records import PUT, Records, records_of
from headwater.statefiles.refusals import UnknownFormat, corrupt_state, removed_state, unknown_format
from headwater.statefiles.sst import read_tables
from headwater.statefiles.sst_file import TableFile

_NEEDED_IN_FOLDER = ("MANIFEST", "CURRENT", "OPTIONS", "IDENTITY")


def open_snapshot(files: FileTree, path: str) -> SnapshotZip:
    """Return a snapshot's zip. Raise an error about state files if it is corrupt or in an unknown format."""
    try:
        return open_snapshot_zip(files.read(path), path)
    except FileNotFoundError:
        raise removed_state(path) from None
    except CheckpointUnreadable as error:
        problem = error.problem.removeprefix(f"{path} ")
        is_unknown = error.code in ("bad-version", "newer-version")
        raise (unknown_format if is_unknown else corrupt_state)(path, problem) from None


def snapshot_families(files: FileTree, path: str) -> Mapping[str, int]:
    """Return the ids of a snapshot's column families by name."""
    return open_snapshot(files, path).families


def snapshot_tables(files: FileTree, path: str) -> frozenset[str]:
    """Return the paths of a snapshot's table files. They are immutable, and snapshots share them."""
    snapshot = open_snapshot(files, path)
    return frozenset(_table_path(snapshot, table) for table in snapshot.tables)


def table_files(files: FileTree, path: str) -> list[TableFile]:
    """Return a snapshot's table files, of which nothing is read yet."""
    snapshot = open_snapshot(files, path)
    found = {_table_path(snapshot, table): table.size for table in snapshot.tables}
    return [TableFile(files, table, found[table]) for table in sorted(found)]


def read_snapshot(files: FileTree, path: str) -> list[Records]:
    """Return every operation in a snapshot's tables, table by table."""
    snapshot = open_snapshot(files, path)
    if not snapshot.tables:
        return []
    try:
        return read_tables(files, [_table_path(snapshot, table) for table in snapshot.tables])
    except UnknownFormat:
        return [read_through_rocksdb(files, snapshot)]


def _table_path(snapshot: SnapshotZip, table: SnapshotFile) -> str:
    return join(parent_and_name(snapshot.path)[0], table.path)


def read_through_rocksdb(files: FileTree, snapshot: SnapshotZip) -> Records:
    """Read a snapshot with RocksDB itself, in a temporary folder, for tables in an unknown format."""
    import tempfile  # noqa: PLC0415  rarely needed

    from rocksdict import AccessType, Options, Rdict  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="headwater-state-") as folder:
        _copy_database(files, snapshot, Path(folder))
        options = Options(raw_mode=True)
        options.create_if_missing(False)
        try:
            database = Rdict(folder, options, access_type=AccessType.read_only())
        except Exception as error:  # rocksdict raises bare exceptions
            raise corrupt_state(snapshot.path, f"cannot be opened by RocksDB: {error}") from None
        try:
            pairs = list(database.items())
        finally:
            database.close()
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return records_of(keys, values, np.full(len(keys), PUT, np.uint8), np.arange(len(keys)))


def _copy_database(files: FileTree, snapshot: SnapshotZip, folder: Path) -> None:
    for name in snapshot.archive.namelist():
        if name.startswith(_NEEDED_IN_FOLDER):
            (folder / Path(name).name).write_bytes(snapshot.archive.read(name))
    for table in snapshot.tables:
        source, target = _table_path(snapshot, table), folder / Path(table.local_name).name
        local = files.local_path(source)
        if local is not None and local.exists():
            target.symlink_to(local.resolve())
        else:
            target.write_bytes(_table_bytes(files, source))


def _table_bytes(files: FileTree, path: str) -> bytes:
    try:
        return files.read(path)
    except FileNotFoundError:
        raise corrupt_state(path, "is missing, and a snapshot needs it") from None
