"""In-memory trees that simulate a crash: before every effect on the file system the process can end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.checkpoint.filetree import Entry
from headwater.checkpoint.memory_tree import MemoryTree


class Crashed(BaseException):
    """The simulated end of the process. Not an ``Exception``, so that no handler continues after it."""


def failing_after(
    calls: int, function: Callable[..., object], error: type[BaseException] = Crashed
) -> Callable[..., object]:
    """Return a function that can be called so many times, and raises from then on."""
    left = iter(range(calls))

    def called(*arguments: object) -> object:
        if next(left, None) is None:
            raise error
        return function(*arguments)

    return called


@dataclass
class CrashSchedule:
    """Counts the points at which a process can crash, and crashes it at one of them, if a number is given."""

    crash_at: int | None = None
    passed: int = 0
    crashed: bool = False

    def point(self) -> None:
        if self.crashed or self.passed == self.crash_at:
            self.crashed = True
            raise Crashed
        self.passed += 1


EDGE = 20


def sampled_points(count: int, every: int, edge: int = EDGE) -> list[int]:
    """Return points of a change: all at its beginning and end, and every so many of the moves in between.

    The plan, the guard and the journal are written at the edges. The moves resemble each other.
    """
    return [number for number in range(count) if number % every == 0 or min(number, count - number) <= edge]


class Tree(MemoryTree):
    """A tree in memory with a location of its own."""

    def __init__(self, contents: dict[str, bytes], location: str = "memory:") -> None:
        super().__init__(contents)
        self.location = location

    def exists(self, path: str) -> bool:
        return path in self.contents


class CrashingDisk(Tree):
    """A local disk: renames are atomic. A write goes to a temporary file first, which a crash may leave incomplete."""

    def __init__(self, contents: dict[str, bytes], schedule: CrashSchedule, location: str = "memory:") -> None:
        super().__init__(contents, location)
        self.schedule = schedule

    def write(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.headwater.tmp".removeprefix("/")
        self.schedule.point()
        self.contents[draft] = data[: len(data) // 2]
        self.schedule.point()
        self.contents[draft] = data
        self.schedule.point()
        self.contents[path] = self.contents.pop(draft)
        self.schedule.point()

    def create(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.headwater.tmp".removeprefix("/")
        self.schedule.point()
        self.contents[draft] = data[: len(data) // 2]
        self.schedule.point()
        self.contents[draft] = data
        self.schedule.point()
        try:
            MemoryTree.create(self, path, data)
            self.schedule.point()
        finally:
            if not self.schedule.crashed:
                del self.contents[draft]
        self.schedule.point()

    def move(self, source: str, target: str) -> None:
        data = self.read(source)
        self.schedule.point()
        del self.contents[source]
        self.contents[target] = data
        self.schedule.point()

    def copy(self, source: str, target: str) -> None:
        raise AssertionError("files on a disk are moved, not copied")

    def link(self, source: str, target: str) -> None:
        data = self.read(source)
        self.schedule.point()
        self.contents[target] = data
        self.schedule.point()

    def remove(self, path: str) -> None:
        self.schedule.point()
        super().remove(path)
        self.schedule.point()

    def remove_folder(self, folder: str) -> None:
        for path in sorted(held for held in self.contents if held.startswith(f"{folder}/")):
            self.schedule.point()
            del self.contents[path]
        self.schedule.point()

    def sync_folders(self, folders: Iterable[str]) -> None:
        for _ in folders:
            self.schedule.point()


class CrashingObjectStore(CrashingDisk):
    """An object store: writes are atomic. A move is a copy and a removal, and a crash can happen in between."""

    def write(self, path: str, data: bytes) -> None:
        self.schedule.point()
        self.contents[path] = data
        self.schedule.point()

    def create(self, path: str, data: bytes) -> None:
        self.schedule.point()
        MemoryTree.create(self, path, data)
        self.schedule.point()

    def move(self, source: str, target: str) -> None:
        data = self.read(source)
        self.schedule.point()
        self.contents[target] = data
        self.schedule.point()
        del self.contents[source]
        self.schedule.point()


class TimestampedTree(Tree):
    """A tree in memory whose files have modification times."""

    def __init__(self, contents: dict[str, bytes], times: dict[str, int], location: str = "memory:") -> None:
        super().__init__(contents, location)
        self.times = times

    def entries(self, folder: str) -> list[Entry]:
        prefix = f"{folder}/" if folder else ""
        return [
            Entry(entry.name, entry.is_folder, entry.size, self.times.get(f"{prefix}{entry.name}", entry.modified_ms))
            for entry in super().entries(folder)
        ]
