"""A folder of any tree of files as a tree of its own, read-only."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.filetree import Entry, FileTree, ReadOnlyTree
from headwater.checkpoint.layout import join


class FolderTree(ReadOnlyTree):
    """The files below a folder. Unlike ``locate.subtree``, it needs no client of its own for the store."""

    def __init__(self, files: FileTree, folder: str) -> None:
        self._files = files
        self._folder = folder

    @property
    def location(self) -> str:
        return f"{self._files.location.rstrip('/')}/{self._folder}"

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:
        return self._files.spark_uri(self._inner(path), like=like)

    def _inner(self, path: str) -> str:
        return join(self._folder, path) if path else self._folder

    def read(self, path: str) -> bytes:
        return self._files.read(self._inner(path))

    def read_blocks(self, path: str) -> Iterator[bytes]:
        return self._files.read_blocks(self._inner(path))

    def read_range(self, path: str, start: int, size: int) -> bytes:
        return self._files.read_range(self._inner(path), start, size)

    def size(self, path: str) -> int:
        return self._files.size(self._inner(path))

    def exists(self, path: str) -> bool:
        return self._files.exists(self._inner(path))

    def entries(self, folder: str) -> list[Entry]:
        return self._files.entries(self._inner(folder))

    def tree(self, folder: str) -> dict[str, list[str]]:
        start = len(self._folder) + 1
        return {place[start:]: names for place, names in self._files.tree(self._inner(folder)).items()}
