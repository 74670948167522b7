"""A RocksDB snapshot on disk: ``V.zip`` with RocksDB's small files, and the table files it names under ``SSTs/``."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import SST_FOLDER
from headwater.checkpoint.local_tree import LocalTree
from headwater.statefiles.buffers import ByteSpace
from headwater.statefiles.records import PUT, Records
from headwater.statefiles.refusals import FormatUnknown, broken_state, unknown_format

_METADATA = "metadata"
_MOST_METADATA_BYTES = 256 * 1024 * 1024
_NEEDED_IN_FOLDER = ("MANIFEST", "CURRENT", "OPTIONS", "IDENTITY")


@dataclass(frozen=True)
class Snapshot:
    """What ``metadata`` in the zip says: table files by RocksDB's name for them, and the column families' numbers."""

    path: str
    folder: str
    tables: Mapping[str, str]
    families: Mapping[str, int]

    def table_path(self, local_name: str) -> str:
        return f"{self.folder}/{SST_FOLDER}/{self.tables[local_name]}"


def open_snapshot(files: FileTree, path: str) -> tuple[Snapshot, zipfile.ZipFile]:
    try:
        packed = zipfile.ZipFile(io.BytesIO(files.read(path)))
        if packed.getinfo(_METADATA).file_size > _MOST_METADATA_BYTES:
            raise broken_state(path, "has metadata of a size that no snapshot needs")
        text = packed.read(_METADATA).decode("utf-8")
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, NotImplementedError, RuntimeError):
        raise broken_state(path, "is no whole RocksDB snapshot") from None
    version, _, body = text.partition("\n")
    if version != "v1":
        raise unknown_format(path, f"has metadata of version {version[:20]!r}; version v1 is known")
    try:
        about = json.loads(body)
        tables = {table["localFileName"]: table["dfsSstFileName"] for table in about["sstFiles"]}
        families = {name: int(number) for name, number in (about.get("columnFamilyMapping") or {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise broken_state(path, "has metadata that cannot be read") from None
    return Snapshot(path, path.rpartition("/")[0], tables, families), packed


def snapshot_families(files: FileTree, path: str) -> Mapping[str, int]:
    return open_snapshot(files, path)[0].families


def snapshot_tables(files: FileTree, path: str) -> frozenset[str]:
    """The paths of a snapshot's table files. They are never written again, and snapshots share them."""
    snapshot, _ = open_snapshot(files, path)
    return frozenset(snapshot.table_path(name) for name in snapshot.tables)


def read_snapshot(files: FileTree, path: str) -> list[Records]:
    """Every operation in a snapshot's tables, table by table."""
    snapshot, packed = open_snapshot(files, path)
    if not snapshot.tables:
        return []
    from headwater.statefiles.sst import read_tables  # noqa: PLC0415

    try:
        return read_tables(files, [snapshot.table_path(name) for name in snapshot.tables])
    except FormatUnknown:
        return [read_through_rocksdb(files, snapshot, packed)]


def read_through_rocksdb(files: FileTree, snapshot: Snapshot, packed: zipfile.ZipFile) -> Records:
    """The same through RocksDB itself, in a temporary folder, for tables of a shape that is not known here."""
    import tempfile  # noqa: PLC0415  seldom needed

    from rocksdict import AccessType, Options, Rdict  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="headwater-state-") as made:
        _lay_out(files, snapshot, packed, Path(made))
        options = Options(raw_mode=True)
        options.create_if_missing(False)
        try:
            database = Rdict(made, options, access_type=AccessType.read_only())
        except Exception as error:  # rocksdict raises bare exceptions
            raise broken_state(snapshot.path, f"cannot be opened by RocksDB: {error}") from None
        try:
            pairs = list(database.items())
        finally:
            database.close()
    return _packed_up([key for key, _ in pairs], [value for _, value in pairs])


def _lay_out(files: FileTree, snapshot: Snapshot, packed: zipfile.ZipFile, folder: Path) -> None:
    for name in packed.namelist():
        if name.startswith(_NEEDED_IN_FOLDER):
            (folder / Path(name).name).write_bytes(packed.read(name))
    for local_name in snapshot.tables:
        source, target = snapshot.table_path(local_name), folder / Path(local_name).name
        if isinstance(files, LocalTree) and files.exists(source):
            target.symlink_to(files.path_of(source).resolve())
        else:
            target.write_bytes(read_table(files, snapshot.path, source))


def read_table(files: FileTree, snapshot_path: str, path: str) -> bytes:
    try:
        return files.read(path)
    except FileNotFoundError:
        raise broken_state(path, f"is not there, and {snapshot_path} needs it") from None


def _packed_up(keys: list[bytes], values: list[bytes]) -> Records:
    key_length = np.fromiter(map(len, keys), np.int64, len(keys))
    value_length = np.fromiter(map(len, values), np.int64, len(values))
    key_start = np.cumsum(key_length) - key_length
    key_bytes = int(key_length.sum())
    value_start = np.cumsum(value_length) - value_length + key_bytes
    space = ByteSpace(b"".join(keys) + b"".join(values))
    operation = np.full(len(keys), PUT, np.uint8)
    return Records(space, space, operation, key_start, key_length, value_start, value_length, np.arange(len(keys)))
