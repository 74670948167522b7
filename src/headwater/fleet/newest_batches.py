"""A local checkpoint as if its logs had only the newest batches, which is all that a summary needs."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.checkpoint.filetree import Entry, FileTree, FolderNames, ReadOnlyTree
from headwater.checkpoint.layout import COMMITS, OFFSETS, batch_id


class NewestBatches(ReadOnlyTree):
    """A view that lists the newest ``most`` batches. The sizes and times of others, hundreds of files, are not read."""

    is_local = True

    def __init__(self, files: FileTree, most: int) -> None:
        self._files = files
        self._most = most

    @property
    def location(self) -> str:
        return self._files.location

    def local_path(self, path: str = "") -> Path | None:
        return self._files.local_path(path)

    def subtree(self, folder: str) -> FileTree:
        return self._files.subtree(folder)

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:
        return self._files.spark_uri(path, like=like)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def entries(self, folder: str) -> list[Entry]:
        if folder not in (OFFSETS, COMMITS):
            return self._files.entries(folder)
        numbered = [(number, name) for name in self.names(folder).files if (number := batch_id(name)) is not None]
        base = str(self._files.local_path(folder))
        found = [_entry(base, name) for _, name in sorted(numbered)[-self._most :]]
        return [entry for entry in found if entry is not None]

    def names(self, folder: str) -> FolderNames:
        return self._files.names(folder)

    def tree(self, folder: str) -> dict[str, list[str]]:
        return self._files.tree(folder)


def _entry(folder: str, name: str) -> Entry | None:
    try:
        info = os.stat(f"{folder}/{name}")  # noqa: PTH116  thousands of them: no Path for each
    except FileNotFoundError:  # removed since the listing, by a running query
        return None
    return Entry(name, False, info.st_size, info.st_mtime_ns // 1_000_000)


def newest_batches(files: FileTree, most: int) -> FileTree:
    """Return a tree with the newest batches; an object store lists sizes and times at no cost, and is returned as it is."""
    return NewestBatches(files, most) if files.is_local else files
