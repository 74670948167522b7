"""Restore points as ``kept`` shows them: dictionaries for ``--json`` and rows of a table."""

from __future__ import annotations

from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.restore_points import RestorePoint
from headwater.core.text import count
from headwater.core.times import iso_from_ms
from headwater.views.formatting import format_bytes, format_time

COLUMNS = ("NAME", "BATCH", "COMMITTED (UTC)", "KEPT (UTC)", "WATERMARK (UTC)", "OWN", "SHARED", "MADE")


def point_as_dict(files: FileTree, point: RestorePoint) -> dict[str, Any]:
    """Return a restore point as ``kept --json`` prints it."""
    own = _own_bytes(files, point)
    return {
        "name": point.name,
        "batch_id": point.batch_id,
        "kept_at": iso_from_ms(point.kept_at_ms),
        "committed_at": None if point.committed_at_ms is None else iso_from_ms(point.committed_at_ms),
        "watermark": None if point.watermark_ms is None else iso_from_ms(point.watermark_ms),
        "own_bytes": own,
        "shared_bytes": max(0, point.total_bytes - own),
        "files": point.file_count,
        "automatic": point.automatic,
    }


def point_cells(files: FileTree, point: RestorePoint) -> tuple[str, ...]:
    """Return the texts of a restore point for ``COLUMNS``."""
    own = _own_bytes(files, point)
    return (
        point.name,
        str(point.batch_id),
        format_time(point.committed_at_ms),
        format_time(point.kept_at_ms),
        format_time(point.watermark_ms),
        format_bytes(own),
        format_bytes(max(0, point.total_bytes - own)),
        "by --keep-every" if point.automatic else "by hand",
    )


def size_text(files: FileTree, point: RestorePoint) -> str:
    """Return the number of files of a point and their size: ``31 files, 3.4 MB shared, 20 kB own``."""
    own = _own_bytes(files, point)
    shared = max(0, point.total_bytes - own)
    return f"{count(point.file_count, 'file')}, {format_bytes(shared)} shared, {format_bytes(own)} own"


def _own_bytes(files: FileTree, point: RestorePoint) -> int:
    """Return what dropping a point would free. On an object store every file is a copy, so nothing has to be listed."""
    if not files.is_local:
        return point.total_bytes
    return files.own_bytes(point.place) + files.own_bytes(point.sink_place)
