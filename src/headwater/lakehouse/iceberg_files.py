"""The files of an Iceberg snapshot: its manifests, and the data and delete files that they list."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from headwater.checkpoint.locate import open_files
from headwater.core.errors import CheckpointUnreadable
from headwater.core.extras import naming_extras
from headwater.lakehouse.iceberg_metadata import Snapshot
from headwater.lakehouse.tables import FilesMoved

ADDED, DELETED = 1, 2
DATA = 0


@dataclass(frozen=True)
class Manifest:
    """A manifest, as the list of a snapshot names it."""

    path: str
    snapshot_id: int | None
    """The snapshot that wrote it."""
    is_data: bool


@dataclass(frozen=True)
class ListedFile:
    """A file of the table. ``rows`` are those in the file, also if later deletes hide some of them."""

    path: str
    rows: int
    is_data: bool
    status: int
    snapshot_id: int | None
    """The snapshot that added it."""
    part: int | None = None
    """Where the delete vector starts, if several of them share a file."""

    @property
    def key(self) -> tuple[str, int | None]:
        return self.path, self.part


def manifests_of(snapshot: Snapshot) -> list[Manifest]:
    """Return the manifests of a snapshot in the order of its list."""
    if snapshot.manifest_list is None:
        return [Manifest(path, None, is_data=True) for path in snapshot.manifests]
    try:
        return [
            Manifest(str(entry["manifest_path"]), entry.get("added_snapshot_id"), entry.get("content", DATA) == DATA)
            for entry in _records(snapshot.manifest_list)
        ]
    except KeyError:
        raise _unreadable(snapshot.manifest_list, "is not a list of manifests") from None


@lru_cache(maxsize=4096)
def listed(manifest: Manifest) -> tuple[ListedFile, ...]:
    """Return all entries of a manifest, also those of deleted files. Manifests never change."""
    try:
        return tuple(_listed(entry, manifest) for entry in _records(manifest.path))
    except (KeyError, TypeError, ValueError):
        raise _unreadable(manifest.path, "is not a manifest") from None


def live_files(manifests: Iterable[Manifest]) -> Iterator[ListedFile]:
    """Yield the files that belong to the table, according to some of a snapshot's manifests."""
    for manifest in manifests:
        yield from (file for file in listed(manifest) if file.status != DELETED)


def files_moved(before: Snapshot | None, after: Snapshot | None) -> tuple[list[ListedFile], list[ListedFile]]:
    """Return the files that leave and those that return if a table goes from one snapshot to another.

    Manifests that both snapshots have are not read.
    """
    old = manifests_of(before) if before else []
    new = manifests_of(after) if after else []
    shared = {manifest.path for manifest in old} & {manifest.path for manifest in new}
    only_old = {file.key: file for file in live_files(one for one in old if one.path not in shared)}
    only_new = {file.key: file for file in live_files(one for one in new if one.path not in shared)}
    return (
        [file for key, file in only_old.items() if key not in only_new],
        [file for key, file in only_new.items() if key not in only_old],
    )


def counted(files: Iterable[ListedFile]) -> FilesMoved:
    """Return the number of files and rows; the rows are unknown if delete files hide some of them."""
    found = list(files)
    return FilesMoved(len(found), sum(file.rows for file in found) if all(file.is_data for file in found) else None)


def missing_of(files: Iterable[ListedFile]) -> list[str]:
    """Return the files that no longer exist."""
    return [path for path in dict.fromkeys(file.path for file in files) if not location_exists(path)]


def read_location(location: str) -> bytes:
    """Return the contents of a file that the table names."""
    folder, name = _split(location)
    try:
        return open_files(folder).read(name)
    except (IsADirectoryError, NotADirectoryError):
        raise _unreadable(location, "is not a file") from None


def location_exists(location: str) -> bool:
    """Return whether there is a file that the table names."""
    if "://" not in location:
        return Path(_local(location)).exists()
    folder, name = _split(location)
    return open_files(folder).exists(name)


def _split(location: str) -> tuple[str, str]:
    folder, _, name = (location if "://" in location else _local(location)).rpartition("/")
    return folder or "/", name


def _local(location: str) -> str:
    """Return a path: Hadoop writes ``file:/a``, and ``a`` for a warehouse with a relative path."""
    return str(Path(location.removeprefix("file:")).absolute())


def _records(location: str) -> Iterator[Mapping[str, Any]]:
    with naming_extras():
        import fastavro  # noqa: PLC0415  an optional package
    data = read_location(location)
    try:
        found = list(fastavro.reader(io.BytesIO(data)))
    except Exception as error:  # whatever fastavro raises for bytes that are not Avro
        raise _unreadable(location, f"is not a readable Avro file ({type(error).__name__})") from None
    for record in found:
        if not isinstance(record, dict):
            raise _unreadable(location, "is not a list of files")
        yield record


def _unreadable(location: str, problem: str) -> CheckpointUnreadable:
    return CheckpointUnreadable(
        "table-unreadable",
        f"cannot read the Iceberg table: {location} {problem}",
        remedy="read the table with Spark to see whether it is damaged",
    )


def _listed(entry: Mapping[str, Any], manifest: Manifest) -> ListedFile:
    file = entry["data_file"]
    snapshot = entry.get("snapshot_id")
    return ListedFile(
        str(file["file_path"]),
        int(file["record_count"]),
        file.get("content", DATA) == DATA,
        int(entry["status"]),
        manifest.snapshot_id if snapshot is None else snapshot,
        file.get("content_offset"),
    )
