"""What a streaming query reads from an Iceberg table between two offsets: snapshots, and the files that they added.

A query reads the snapshots of the main branch one after the other, and of each one the added files in the order of its
manifests. Snapshots that only rearrange rows are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import SOURCES
from headwater.checkpoint.table_offsets import IcebergPosition, iceberg_position
from headwater.core.errors import CheckpointUnreadable
from headwater.core.text import count
from headwater.lakehouse.iceberg_files import ADDED, ListedFile, listed, live_files, manifests_of, missing_of
from headwater.lakehouse.iceberg_metadata import NO_SNAPSHOT, Snapshot, TableMetadata

APPEND, REPLACE = "append", "replace"
SKIP_OPTIONS = {
    "delete": "streaming-skip-delete-snapshots",
    "overwrite": "streaming-skip-overwrite-snapshots",
}


@dataclass(frozen=True)
class SnapshotRead:
    """The files of one snapshot that a query reads."""

    snapshot_id: int
    files: tuple[ListedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def initial_position(checkpoint: FileTree, source: str) -> IcebergPosition | None:
    """Return the offset that the query started with, which Iceberg keeps in the checkpoint; None if there is none."""
    try:
        return iceberg_position(json.loads(checkpoint.read(f"{SOURCES}/{source}/offsets/0")))
    except (OSError, ValueError):
        return None


def start_position(table: TableMetadata, initial: IcebergPosition | None, end: IcebergPosition) -> IcebergPosition:
    """Return where the first batch started: a query that found no snapshot starts with the oldest one before its end."""
    if initial is not None and initial.snapshot_id != NO_SNAPSHOT:
        return initial
    oldest = list(table.lineage(end.snapshot_id))[-1:]
    return IcebergPosition(oldest[0].snapshot_id if oldest else end.snapshot_id, 0)


def reads_between(table: TableMetadata, start: IcebergPosition, end: IcebergPosition) -> Iterator[SnapshotRead]:
    """Yield what lies after one position, up to another. Raise ``CheckpointUnreadable`` if a snapshot has expired."""
    if end.snapshot_id == NO_SNAPSHOT:
        return
    for snapshot in _snapshots_between(table, start, end):
        if snapshot.operation != APPEND:
            continue
        is_first = snapshot.snapshot_id == start.snapshot_id
        files = _files_of(snapshot, in_table=is_first and start.in_table)
        until = end.files if snapshot.snapshot_id == end.snapshot_id else None
        yield SnapshotRead(snapshot.snapshot_id, tuple(files[max(start.files, 0) if is_first else 0 : until]))


def is_rolled_back(table: TableMetadata, position: IcebergPosition) -> bool:
    """Return whether the table has a snapshot, but not in the history of its main branch. No query can continue there."""
    known = {snapshot.snapshot_id for snapshot in table.lineage(table.head)}
    return position.snapshot_id in table.snapshots.keys() - known


def unreadable_part(
    table: TableMetadata, start: IcebergPosition, end: IcebergPosition, options: Mapping[str, str] | None = None
) -> str | None:
    """Return why a query cannot read a part of the table a second time; None if everything is still there.

    The query continues to the newest snapshot, so snapshots after the part count as well. ``options`` are those of the
    source.
    """
    try:
        missing = missing_of(file for read in reads_between(table, start, end) for file in read.files)
        later = list(_snapshots_between(table, start, IcebergPosition(table.head or NO_SNAPSHOT, 0)))[1:]
    except CheckpointUnreadable as error:
        return error.problem
    except FileNotFoundError as error:
        missing, later = [str(error.filename or error)], []
    if missing:
        return f"{count(len(missing), 'file')} no longer exist; the first is {missing[0]}"
    given = {name.lower(): value.lower() for name, value in (options or {}).items()}
    for snapshot in later:
        option = SKIP_OPTIONS.get(snapshot.operation)
        if option is not None and given.get(option) != "true":
            return (
                f"snapshot {snapshot.snapshot_id} ({snapshot.operation}) removes rows, and a query that reads the table "
                f"fails there, unless it has the option {option}=true"
            )
    return None


def unread_rows(table: TableMetadata, position: IcebergPosition) -> int | None:
    """Return how many rows lie after a position; None if the table does not show it."""
    if table.head is None:
        return 0
    end = IcebergPosition(table.head, len(_files_of(table.snapshots[table.head], in_table=False)))
    try:
        return sum(read.rows for read in reads_between(table, start_position(table, position, end), end))
    except (CheckpointUnreadable, FileNotFoundError):
        return None


def _snapshots_between(table: TableMetadata, start: IcebergPosition, end: IcebergPosition) -> list[Snapshot]:
    """Return the snapshots from one position to another, oldest first."""
    found: list[Snapshot] = []
    for snapshot in table.lineage(end.snapshot_id):
        found.append(snapshot)
        if snapshot.snapshot_id == start.snapshot_id:
            return found[::-1]
    lost = end.snapshot_id if not found else start.snapshot_id
    raise CheckpointUnreadable(
        "snapshot-expired",
        f"snapshot {lost} has expired, or is not before snapshot {end.snapshot_id}",
        evidence={"table": table.folder},
    )


def _files_of(snapshot: Snapshot, *, in_table: bool) -> list[ListedFile]:
    manifests = [manifest for manifest in manifests_of(snapshot) if manifest.is_data]
    if in_table:
        return list(live_files(manifests))
    own = [manifest for manifest in manifests if manifest.snapshot_id in (None, snapshot.snapshot_id)]
    return [
        file
        for manifest in own
        for file in listed(manifest)
        if file.status == ADDED and file.snapshot_id == snapshot.snapshot_id
    ]
