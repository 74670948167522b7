"""The storage protocol: a tree of files that holds a checkpoint, a sink's output or a source's input.

``local_tree``, ``object_tree`` and ``memory_tree`` (for tests) implement it. Paths are relative to the root of the
tree and use ``/``. A missing path raises ``FileNotFoundError``; a missing folder lists as empty, because object stores
have no folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol


@dataclass(frozen=True)
class Entry:
    """A file or folder in a listing."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int | None


@dataclass(frozen=True)
class FolderNames:
    """The names in a folder."""

    files: frozenset[str]
    folders: frozenset[str]


class FileTree(Protocol):
    """A tree of files. Methods that have a body here behave as on an object store; ``LocalTree`` overrides them."""

    @property
    def location(self) -> str:
        """The path or URL by which a user names the tree."""

    @property
    def is_local(self) -> bool:
        """Whether the tree is a folder on this machine."""
        return False

    def local_path(self, path: str = "") -> Path | None:  # noqa: ARG002  LocalTree uses it
        """Return where other programs can open a file; None if the tree is not a folder on this machine."""
        return None

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:
        """Return the URI by which Spark knows a file.

        ``like`` is a URI that Spark recorded for the same store: its scheme is kept. Some clusters use ``s3``, others
        ``s3a``.
        """

    def subtree(self, folder: str) -> FileTree:
        """Return a folder as a tree of its own; a read-only one, unless the tree can open it by itself."""
        return FolderTree(self, folder)

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""

    def read_blocks(self, path: str) -> Iterator[bytes]:
        """Yield the contents of a file in blocks of bounded size."""
        yield self.read(path)

    def read_range(self, path: str, start: int, size: int) -> bytes:
        """Return a part of a file, without transferring the rest where the store allows it; less at the end of the file."""
        return self.read(path)[start : start + size]

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return len(self.read(path))

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder at a path."""

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, sorted by name; empty if the folder does not exist."""

    def names(self, folder: str) -> FolderNames:
        """Return the names of the files and of the folders in a folder; cheaper than ``entries`` if it is large."""
        found = self.entries(folder)
        return FolderNames(
            frozenset(entry.name for entry in found if not entry.is_folder),
            frozenset(entry.name for entry in found if entry.is_folder),
        )

    def tree(self, folder: str) -> dict[str, list[str]]:
        """Return the file names in a folder and every folder below it; cheaper than ``entries`` for each of them."""

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically: readers see the old contents or the new ones."""

    def write_blocks(self, path: str, blocks: Iterable[bytes], modified_ms: int | None = None) -> None:  # noqa: ARG002
        """Write a file atomically from blocks. It gets a modification time if the store can set one."""
        self.write(path, b"".join(blocks))

    @property
    def can_create(self) -> bool:
        """Whether ``create`` is possible."""
        return False

    def create(self, path: str, data: bytes) -> None:
        """Write a file atomically if there is none; otherwise raise ``FileExistsError`` and leave it as it is."""
        del data
        raise ValueError(f"this store cannot create {path} exclusively")

    def replace(self, path: str, data: bytes, expected: bytes) -> None:
        """Write a file atomically if it still has the expected contents; otherwise raise ``FileExistsError``.

        Possible where ``create`` is.
        """
        del data, expected
        raise ValueError(f"this store cannot replace {path} on a condition")

    def append(self, path: str, data: bytes) -> None:
        """Add data to the end of a file, which need not exist. An object store has to rewrite the entire object."""
        self.write(path, (self.read(path) if self.exists(path) else b"") + data)

    def move(self, source: str, target: str) -> None:
        """Move a file, replacing the target."""

    def copy(self, source: str, target: str) -> None:
        """Copy a file, replacing the target."""

    def link(self, source: str, target: str) -> None:
        """Make a file available under a second path, by a hard link if possible, otherwise by a copy.

        The target appears complete or not at all, and is replaced if it exists. Like a shared file, a linked one must never
        be modified in place.
        """
        self.copy(source, target)

    def share(self, path: str, into: FileTree) -> None:
        """Make a file available at the same path of another tree, by a hard link if possible, otherwise by a copy.

        Both trees may then hold the same file, so it must never be modified in place. Spark only replaces its files.
        """
        into.write(path, self.read(path))

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and everything in it, if it exists."""

    def sync_folders(self, folders: Iterable[str]) -> None:  # noqa: ARG002  LocalTree uses it
        """Make moves within these folders survive a power failure. An object store is always durable."""
        return

    def own_bytes(self, folder: str) -> int:
        """Return the bytes that removing a folder would free: those of files that have no hard link elsewhere."""
        return sum(entry.size for _, entry in walk(self, folder))

    def drop_empty_folders(self, folders: Iterable[str]) -> None:  # noqa: ARG002  LocalTree uses it
        """Remove these folders and their parents if no file is left in or below them, except for top-level folders.

        The empty folders that Spark creates in advance go with them: one that stayed would pass for an operator's state.
        """
        return


def walk(files: FileTree, folder: str = "") -> Iterator[tuple[str, Entry]]:
    """Yield the path and entry of every file below a folder, sorted."""
    for entry in files.entries(folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_folder:
            yield from walk(files, path)
        else:
            yield path, entry


def names_by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return what ``FileTree.tree`` returns, given the paths of all files."""
    found: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        found.setdefault(folder, []).append(name)
    return found


class ReadOnlyTree(FileTree):
    """A view of another tree, which cannot be changed through it."""

    def write(self, path: str, data: bytes) -> NoReturn:
        raise _read_only(path, data)

    def move(self, source: str, target: str) -> NoReturn:
        raise _read_only(source, target)

    def copy(self, source: str, target: str) -> NoReturn:
        raise _read_only(source, target)

    def remove(self, path: str) -> NoReturn:
        raise _read_only(path)

    def remove_folder(self, folder: str) -> NoReturn:
        raise _read_only(folder)

    def sync_folders(self, folders: Iterable[str]) -> NoReturn:
        raise _read_only(folders)

    def drop_empty_folders(self, folders: Iterable[str]) -> NoReturn:
        raise _read_only(folders)


class FolderTree(ReadOnlyTree):
    """A folder of any tree as a tree of its own, read-only."""

    def __init__(self, files: FileTree, folder: str) -> None:
        self._files = files
        self._folder = folder

    @property
    def location(self) -> str:
        return f"{self._files.location.rstrip('/')}/{self._folder}"

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:
        return self._files.spark_uri(self._inner(path), like=like)

    def _inner(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

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


def _read_only(*_: object) -> ValueError:
    return ValueError("a view of another tree is read-only")
