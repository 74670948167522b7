"""A tree of files in a local folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from headwater.checkpoint.filetree import Entry
from headwater.core.errors import CheckpointUnreadable


class LocalTree:
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
