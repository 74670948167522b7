"""Trees that die at a chosen moment: every effect on the file system is a point before which the process can end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.checkpoint.filetree import Entry
from headwater.checkpoint.memory_tree import MemoryTree


class Died(BaseException):
    """The process is gone. Not an ``Exception``: no handler may live on."""


@dataclass
class Fate:
    """Counts the points that a process passes, and ends it at one of them; without a number it lives."""

    dies_at: int | None = None
    passed: int = 0
    dead: bool = False

    def point(self) -> None:
        if self.dead or self.passed == self.dies_at:
            self.dead = True
            raise Died
        self.passed += 1


class Tree(MemoryTree):
    """A tree in memory that says where it is, and hands out its contents as a copy."""

    def __init__(self, contents: dict[str, bytes], location: str = "memory:") -> None:
        super().__init__(contents)
        self.location = location

    def exists(self, path: str) -> bool:
        return path in self.contents


class Disk(Tree):
    """A local disk: renames are atomic; a write goes to a draft first, of which a crash may leave half."""

    def __init__(self, contents: dict[str, bytes], fate: Fate, location: str = "memory:") -> None:
        super().__init__(contents, location)
        self.fate = fate

    def write(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.headwater.tmp".removeprefix("/")
        self.fate.point()
        self.contents[draft] = data[: len(data) // 2]
        self.fate.point()
        self.contents[draft] = data
        self.fate.point()
        self.contents[path] = self.contents.pop(draft)
        self.fate.point()

    def move(self, source: str, target: str) -> None:
        data = self.read(source)
        self.fate.point()
        del self.contents[source]
        self.contents[target] = data
        self.fate.point()

    def copy(self, source: str, target: str) -> None:
        raise AssertionError("nobody copies on a disk")

    def remove(self, path: str) -> None:
        self.fate.point()
        super().remove(path)
        self.fate.point()

    def remove_folder(self, folder: str) -> None:
        for path in sorted(held for held in self.contents if held.startswith(f"{folder}/")):
            self.fate.point()
            del self.contents[path]
        self.fate.point()

    def sync_folders(self, folders: Iterable[str]) -> None:
        for _ in folders:
            self.fate.point()


class Store(Disk):
    """An object store: a write is whole or not there; a move is a copy and a removal, and a crash comes between."""

    def write(self, path: str, data: bytes) -> None:
        self.fate.point()
        self.contents[path] = data
        self.fate.point()

    def move(self, source: str, target: str) -> None:
        data = self.read(source)
        self.fate.point()
        self.contents[target] = data
        self.fate.point()
        del self.contents[source]
        self.fate.point()


class Aged(Tree):
    """A tree whose files have times."""

    def __init__(self, contents: dict[str, bytes], times: dict[str, int], location: str = "memory:") -> None:
        super().__init__(contents, location)
        self.times = times

    def entries(self, folder: str) -> list[Entry]:
        prefix = f"{folder}/" if folder else ""
        return [
            Entry(entry.name, entry.is_folder, entry.size, self.times.get(f"{prefix}{entry.name}", entry.modified_ms))
            for entry in super().entries(folder)
        ]
