"""The storage protocol: a tree of files that holds a checkpoint, a sink's output or a source's input.

``local_tree``, ``object_tree`` and ``memory_tree`` (for tests) implement it. Paths are relative to the root of the
tree and use ``/``. A missing path raises ``FileNotFoundError``; a missing folder lists as empty, because object stores
have no folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Entry:
    """One name in a folder."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int | None


class FileTree(Protocol):
    """A tree of files. The reading half is all that most of Headwater ever needs."""

    @property
    def location(self) -> str:
        """How a user would name this place: a path or a URL."""

    @property
    def is_local(self) -> bool: ...

    def read(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def entries(self, folder: str) -> list[Entry]:
        """The names directly inside a folder, sorted; empty when there is no such folder."""

    def tree(self, folder: str) -> dict[str, list[str]]:
        """Every folder at and below one, with the names of its files: one cheap look, no sizes and no times."""

    def write(self, path: str, data: bytes) -> None:
        """Put a whole file in place, so that a reader sees the old bytes or the new ones and nothing between."""

    def move(self, source: str, target: str) -> None: ...

    def copy(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and all that is in it; one that is not there is no mistake."""

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Have moves within these folders survive a loss of power, where that is not so anyway."""

    def drop_empty_folders(self, folders: Iterable[str]) -> None:
        """Remove these folders, and those above them, as far as nothing is in them; the topmost ones stay.

        Where no file is left below a topmost one, whatever folders others left empty there go too.
        """


def names(files: FileTree, folder: str) -> list[str]:
    return [entry.name for entry in files.entries(folder)]


def walk(files: FileTree, folder: str = "") -> Iterator[tuple[str, Entry]]:
    """Every file below a folder with its path, in sorted order."""
    for entry in files.entries(folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_folder:
            yield from walk(files, path)
        else:
            yield path, entry


def tree_of(paths: Iterable[str]) -> dict[str, list[str]]:
    """What ``FileTree.tree`` gives, from the paths of all files."""
    found: dict[str, list[str]] = {}
    for path in paths:
        place, _, name = path.rpartition("/")
        found.setdefault(place, []).append(name)
    return found
