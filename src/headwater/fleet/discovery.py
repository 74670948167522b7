"""Find the checkpoints below a folder or a prefix of a bucket by their shape, also those that Headwater did not make.

A folder is a checkpoint if it has the logs of one. Folders that cannot contain one are left out: those inside a
checkpoint, the partitions of a table, and the data of a table or a file sink.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headwater.checkpoint.filetree import FileTree, FolderNames
from headwater.checkpoint.layout import (
    COMMITS,
    HEADWATER_FOLDER,
    METADATA,
    OFFSETS,
    SINK_LOG,
    SOURCES,
    STATE,
    hadoop_crc_of,
    join,
)
from headwater.checkpoint.log_entries import parse_query_metadata
from headwater.core.errors import CheckpointUnreadable

MOST_FOLDERS = 50_000
MOST_LEVELS = 16
_READERS = 16
# The time of a folder may have the resolution of seconds, so a listing that is as new as this may already be out of date.
_RECENT_SECONDS = 2.5
_LOGS_OF_TABLES = frozenset({"_delta_log", SINK_LOG})
_NEVER = _LOGS_OF_TABLES | {HEADWATER_FOLDER, "__pycache__", "node_modules"}


def is_checkpoint_shape(names: FolderNames, read_metadata: Callable[[], bytes]) -> bool:
    """Return whether a folder is a checkpoint. ``read_metadata`` is called only if the names do not decide it.

    Unlike ``layout.is_checkpoint``, which checks a folder that a user names as a checkpoint, this has to reject folders
    that have a name in common with one, such as the folder ``metadata`` of an Iceberg table.
    """
    if {OFFSETS, COMMITS} <= names.folders:
        return True
    if METADATA not in names.files:
        return False
    if names.folders & {OFFSETS, COMMITS, SOURCES, STATE}:
        return True
    if names.files - {METADATA, hadoop_crc_of(METADATA)} or names.folders - {HEADWATER_FOLDER}:
        return False
    try:
        parse_query_metadata(read_metadata())
    except (CheckpointUnreadable, OSError):
        return False
    return True


def folders_to_search(names: FolderNames) -> list[str]:
    """Return the folders in a folder that may contain checkpoints."""
    beside_data = bool(_LOGS_OF_TABLES & (names.folders | names.files))
    return sorted(
        name
        for name in names.folders
        if name not in _NEVER
        and "=" not in name
        and (not name.startswith(".") or name == ".headwater")
        and (not beside_data or name.startswith("_") or "checkpoint" in name.lower())
    )


@dataclass(frozen=True)
class _Listing:
    """What was found in a folder, and the time of the folder then; None if it cannot be trusted to show a change."""

    is_checkpoint: bool
    folders: tuple[str, ...]
    modified_ns: int | None


class Discovery:
    """The search below one root. On a local disk, a repeated search lists only the folders that have changed."""

    def __init__(self, files: FileTree) -> None:
        self.files = files
        self.is_complete = True
        """Whether the last search has seen every folder. A root that is too large is searched in part."""
        self.folders_listed = 0
        self._known: dict[str, _Listing] = {}

    def search(self) -> list[str]:
        """Return the paths of the checkpoints relative to the root, sorted; an empty path is the root itself."""
        found: list[str] = []
        seen: dict[str, _Listing] = {}
        level, self.is_complete = [""], True
        for _ in range(MOST_LEVELS):
            below: list[str] = []
            for path, listing in self._list(level):
                seen[path] = listing
                if listing.is_checkpoint:
                    found.append(path)
                else:
                    below += [join(path, name) for name in listing.folders]
            level = below[: MOST_FOLDERS - len(seen)]
            self.is_complete &= len(level) == len(below)
        self.is_complete &= not level
        self._known = seen
        return sorted(found)

    def _list(self, paths: Iterable[str]) -> Iterator[tuple[str, _Listing]]:
        if self.files.is_local:
            yield from ((path, self._listing(path)) for path in paths)
            return
        with ThreadPoolExecutor(_READERS) as readers:  # each is a request of its own
            yield from readers.map(lambda path: (path, self._listing(path)), paths)

    def _listing(self, path: str) -> _Listing:
        modified_ns = self._modified_ns(path)
        known = self._known.get(path)
        if known is not None and modified_ns is not None and known.modified_ns == modified_ns:
            return known
        self.folders_listed += 1
        settled = modified_ns is not None and time.time_ns() - modified_ns > _RECENT_SECONDS * 1e9
        try:
            names = self.files.names(path)
        except PermissionError:
            if not path:
                raise
            return _Listing(False, (), None)
        is_one = is_checkpoint_shape(names, lambda: self.files.read(join(path, METADATA)))
        below = () if is_one else tuple(folders_to_search(names))
        return _Listing(is_one, below, modified_ns if settled else None)

    def _modified_ns(self, path: str) -> int | None:
        local = self.files.local_path(path)
        try:
            return None if local is None else local.stat().st_mtime_ns
        except OSError:
            return None
