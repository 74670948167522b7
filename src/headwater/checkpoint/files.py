"""Where a checkpoint's bytes are: a local folder, an object store, or memory (the twin for tests).

Paths are relative to the checkpoint and use ``/``. A path that is not there reads as ``FileNotFoundError``; a folder
that is not there lists as empty, because object stores have no folders.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from headwater.core.errors import CheckpointUnreadable


@dataclass(frozen=True)
class Entry:
    """One name in a folder."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int | None


class Files(Protocol):
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


def names(files: Files, folder: str) -> list[str]:
    return [entry.name for entry in files.entries(folder)]


def walk(files: Files, folder: str = "") -> Iterator[tuple[str, Entry]]:
    """Every file below a folder with its path, in sorted order."""
    for entry in files.entries(folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_folder:
            yield from walk(files, path)
        else:
            yield path, entry


def open_files(location: str) -> Files:
    """The tree at a path or URL. Spark's ``s3a`` and ``s3n`` are the object store's ``s3``."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return LocalFiles(Path(location.removeprefix("file:")))
    if scheme == "file":
        return LocalFiles(Path(rest))
    return ObjectStoreFiles(location)


class LocalFiles:
    """A folder on this machine. Plain ``os`` calls: a folder of 100,000 files has to list in a blink."""

    is_local = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self._prefix = f"{root}{os.sep}"

    @property
    def location(self) -> str:
        return str(self.root)

    def path_of(self, path: str) -> Path:
        _refuse_way_out(path)
        return self.root / path if path else self.root

    def read(self, path: str) -> bytes:
        _refuse_way_out(path)
        # A log has thousands of small files, and putting a Path together costs more than reading one of them.
        with open(f"{self._prefix}{path}", "rb", buffering=0) as held:  # noqa: PTH123
            return held.read()

    def exists(self, path: str) -> bool:
        return self.path_of(path).exists()

    def entries(self, folder: str) -> list[Entry]:
        try:
            with os.scandir(self.path_of(folder)) as found:
                listed = [_local_entry(item) for item in found]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((entry for entry in listed if entry), key=lambda entry: entry.name)

    def tree(self, folder: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        waiting = [folder]
        while waiting:
            place = waiting.pop()
            names: list[str] = []
            try:
                with os.scandir(self.path_of(place)) as held:
                    for item in held:
                        # A link to a folder may lead out of the checkpoint, or round and round in it.
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(f"{place}/{item.name}" if place else item.name)
                        elif not item.is_dir():
                            names.append(item.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            found[place] = names
        return found

    def write(self, path: str, data: bytes) -> None:
        target = self.path_of(path)
        make_folder(target.parent)
        draft = target.with_name(f".{target.name}.headwater.tmp")
        with draft.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(target)
        _sync_folder(target.parent)

    def move(self, source: str, target: str) -> None:
        _refuse_way_out(source)
        _refuse_way_out(target)
        origin, goal = f"{self.root}/{source}", f"{self.root}/{target}"  # thousands at a time: no Path for each
        try:
            os.rename(origin, goal)  # noqa: PTH104
        except FileNotFoundError:  # mostly the first move into a new folder
            make_folder(Path(goal).parent)
            os.rename(origin, goal)  # noqa: PTH104

    def copy(self, source: str, target: str) -> None:
        goal = self.path_of(target)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.path_of(source), goal)

    def remove(self, path: str) -> None:
        self.path_of(path).unlink()

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(self.path_of(folder), ignore_errors=True)

    def sync_folders(self, folders: Iterable[str]) -> None:
        for folder in folders:
            if self.path_of(folder).is_dir():
                _sync_folder(self.path_of(folder))

    def drop_empty_folders(self, folders: Iterable[str]) -> None:
        held = list(folders)
        for folder in held:
            place = folder
            while "/" in place:
                try:
                    self.path_of(place).rmdir()
                except OSError:  # not empty, or gone already
                    if self.path_of(place).exists():
                        break
                place = place.rpartition("/")[0]
        for top in {folder.partition("/")[0] for folder in held if "/" in folder}:
            if not any(names for _, _, names in os.walk(self.path_of(top))):
                _remove_folders_below(self.path_of(top))


def _remove_folders_below(top: Path) -> None:
    for place, _, _ in os.walk(top, topdown=False):
        if Path(place) != top:
            with suppress(OSError):  # somebody has put a file there
                Path(place).rmdir()


def _refuse_way_out(path: str) -> None:
    """Files of a checkpoint name others: one that was made to do harm must not lead to what lies outside."""
    if path.startswith("/") or (".." in path and ".." in path.split("/")):
        raise CheckpointUnreadable(
            "path-outside",
            "the checkpoint names a file that is not in it",
            evidence={"path": path},
            remedy="do not trust this checkpoint: nobody's Spark writes such a path",
        )


def _local_entry(item: os.DirEntry[str]) -> Entry | None:
    try:
        info = item.stat()
        return Entry(item.name, item.is_dir(), info.st_size, info.st_mtime_ns // 1_000_000)
    except FileNotFoundError:  # gone between the listing and the look: a live query is at work
        return None


def make_folder(folder: Path) -> None:
    """As durable as the file that goes into it: a new folder is an entry of the one above."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class ObjectStoreFiles:
    """Any store that fsspec reaches. Writing an object is atomic there; moving one is a copy and a removal."""

    is_local = False

    def __init__(self, url: str) -> None:
        import fsspec  # noqa: PLC0415  local checkpoints are read without it

        scheme, _, rest = url.partition("://")
        self._url = url
        self._system: Any = fsspec.filesystem("s3" if scheme in {"s3a", "s3n"} else scheme, use_listings_cache=False)
        self._root = rest.rstrip("/")

    @property
    def location(self) -> str:
        return self._url

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def read(self, path: str) -> bytes:
        data: bytes = self._system.cat_file(self._full(path))
        return data

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._full(path)))

    def entries(self, folder: str) -> list[Entry]:
        try:
            listed = self._system.ls(self._full(folder), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        base = self._full(folder)
        found = [_store_entry(item) for item in listed if item["name"].rstrip("/") != base]
        return sorted((entry for entry in found if entry.name), key=lambda entry: entry.name)

    def tree(self, folder: str) -> dict[str, list[str]]:
        paths = (str(path)[len(self._root) + 1 :] for path in self._system.find(self._full(folder)))
        return _tree_of(path for path in paths if not path.endswith("/"))  # s3a's empty objects for folders

    def write(self, path: str, data: bytes) -> None:
        self._system.pipe_file(self._full(path), data)

    def move(self, source: str, target: str) -> None:
        self._system.mv(self._full(source), self._full(target))

    def copy(self, source: str, target: str) -> None:
        self._system.copy(self._full(source), self._full(target))

    def remove(self, path: str) -> None:
        self._system.rm_file(self._full(path))

    def remove_folder(self, folder: str) -> None:
        try:
            self._system.rm(self._full(folder), recursive=True)
        except FileNotFoundError:
            return

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Objects are durable once they are written."""

    def drop_empty_folders(self, folders: Iterable[str]) -> None:
        """A folder is there as long as there is an object below it, but s3a leaves empty objects to stand for some."""
        for top in sorted({folder.split("/")[0] for folder in folders if "/" in folder}):
            held = [str(path) for path in self._system.find(self._full(top))]
            in_use = {place for path in held if not path.endswith("/") for place in _folders_above(path)}
            for path in held:
                if path.endswith("/") and path.rstrip("/") not in {*in_use, self._full(top)}:
                    self._system.rm_file(path)


def _folders_above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _store_entry(item: dict[str, Any]) -> Entry:
    modified = item.get("LastModified") or item.get("mtime") or item.get("created")
    stamp = modified.timestamp() if isinstance(modified, datetime) else modified
    name = str(item["name"]).rstrip("/").rpartition("/")[2]
    return Entry(name, item["type"] == "directory", int(item.get("size") or 0), int(stamp * 1000) if stamp else None)


def _tree_of(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        place, _, name = path.rpartition("/")
        found.setdefault(place, []).append(name)
    return found


def subtree(files: Files, folder: str) -> Files:
    """A folder of a tree as a tree of its own."""
    if isinstance(files, LocalFiles):
        return LocalFiles(files.path_of(folder))
    return open_files(f"{files.location.rstrip('/')}/{folder}")


class MemoryFiles:
    """A tree held in a dictionary: what tests hand to code that wants ``Files``."""

    is_local = False
    location = "memory:"

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = dict(contents or {})

    def read(self, path: str) -> bytes:
        try:
            return self.contents[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def exists(self, path: str) -> bool:
        return path in self.contents or any(held.startswith(f"{path}/") for held in self.contents)

    def entries(self, folder: str) -> list[Entry]:
        prefix = f"{folder}/" if folder else ""
        below = {held[len(prefix) :]: data for held, data in self.contents.items() if held.startswith(prefix)}
        folders = {held.partition("/")[0] for held in below if "/" in held}
        listed = [Entry(name, True, 0, None) for name in folders]
        listed += [Entry(held, False, len(data), 0) for held, data in below.items() if "/" not in held]
        return sorted(listed, key=lambda entry: entry.name)

    def tree(self, folder: str) -> dict[str, list[str]]:
        return _tree_of(path for path in self.contents if not folder or path.startswith(f"{folder}/"))

    def write(self, path: str, data: bytes) -> None:
        self.contents[path] = data

    def move(self, source: str, target: str) -> None:
        self.contents[target] = self.read(source)
        del self.contents[source]

    def copy(self, source: str, target: str) -> None:
        self.contents[target] = self.read(source)

    def remove(self, path: str) -> None:
        self.read(path)
        del self.contents[path]

    def remove_folder(self, folder: str) -> None:
        for held in [path for path in self.contents if path.startswith(f"{folder}/")]:
            del self.contents[held]

    def sync_folders(self, folders: Iterable[str]) -> None:
        """Objects are durable once they are written."""

    def drop_empty_folders(self, folders: Iterable[str]) -> None:
        """There are no folders here."""
