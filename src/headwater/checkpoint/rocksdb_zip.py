"""The zip of a RocksDB snapshot (``V.zip``): RocksDB's small files, and ``metadata`` with the files outside the zip."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.layout import LOG_FOLDER, SST_FOLDER
from headwater.checkpoint.logtext import LogText, integer_field, json_object, string_field, unreadable_file

METADATA = "metadata"
NEWEST_VERSION = 2  # by Spark 4.0, for checkpoint format 2; all others write 1
_MOST_METADATA_BYTES = 256 * 1024 * 1024
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    OSError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True)
class SnapshotFile:
    """A file outside the zip. ``path`` is relative to the store's folder; ``local_name`` is RocksDB's name for it."""

    path: str
    size: int
    local_name: str


@dataclass(frozen=True)
class SnapshotZip:
    """The contents of a snapshot's zip. Snapshots share table files, which are never modified."""

    path: str
    version: int
    archive: zipfile.ZipFile
    tables: tuple[SnapshotFile, ...]
    logs: tuple[SnapshotFile, ...]
    families: Mapping[str, int]
    """The ids of the column families by name."""
    metadata: Mapping[str, Any] = field(repr=False)
    """All of ``metadata``, from which another snapshot of the same store can be made."""

    @property
    def files(self) -> tuple[SnapshotFile, ...]:
        """Every file outside the zip that the snapshot needs."""
        return (*self.tables, *self.logs)

    def verify(self) -> None:
        """Check the checksum of every file in the zip; raise ``CheckpointUnreadable`` for a mismatch."""
        try:
            damaged = self.archive.testzip()
        except _ZIP_ERRORS as error:
            raise _not_a_zip(self.path, error) from None
        if damaged is not None:
            raise unreadable_file("bad-zip", self.path, f"contains a corrupt {damaged}")


def open_snapshot_zip(data: bytes, path: str) -> SnapshotZip:
    """Return the parsed zip of a snapshot; raise ``CheckpointUnreadable`` if it or its metadata is corrupt."""
    if not data:
        raise unreadable_file("empty-file", path, "is empty")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        size = archive.getinfo(METADATA).file_size
        metadata = archive.read(METADATA) if size <= _MOST_METADATA_BYTES else None
    except _ZIP_ERRORS as error:
        raise _not_a_zip(path, error) from None
    if metadata is None:
        raise unreadable_file("bad-zip", path, f"has metadata of an implausible size ({size} bytes)")
    text = LogText.from_bytes(metadata, path)
    version = text.version(path, newest=NEWEST_VERSION)
    value = json_object("\n".join(text.body), path)
    return SnapshotZip(
        path,
        version,
        archive,
        _files(value, "sstFiles", "dfsSstFileName", SST_FOLDER, path),
        () if value.get("logFiles") is None else _files(value, "logFiles", "dfsLogFileName", LOG_FOLDER, path),
        _families(value, path),
        value,
    )


def _not_a_zip(path: str, error: Exception) -> Exception:
    return unreadable_file("bad-zip", path, f"is not a readable zip file ({error})")


def _files(value: dict[str, Any], listing: str, name: str, folder: str, path: str) -> tuple[SnapshotFile, ...]:
    listed = value.get(listing)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise unreadable_file("bad-json", path, f"has {listing} in an unknown format")
    return tuple(
        SnapshotFile(
            f"{folder}/{string_field(one, name, path)}",
            integer_field(one, "sizeBytes", path),
            string_field(one, "localFileName", path),
        )
        for one in listed
    )


def _families(value: dict[str, Any], path: str) -> dict[str, int]:
    families = value.get("columnFamilyMapping") or {}
    if not isinstance(families, dict):
        raise unreadable_file("bad-json", path, "has a columnFamilyMapping in an unknown format")
    return {name: integer_field(families, name, path) for name in families}
