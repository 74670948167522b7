"""A tree of files in a local folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from headwater.checkpoint.filetree import Entry, FileTree, FolderNames
from headwater.core.errors import CheckpointUnreadable

BLOCK_BYTES = 1 << 20


class LocalTree(FileTree):
    """A folder on this machine. Plain ``os`` calls keep a folder of 100,000 files fast to list."""

    is_local = True
    can_create = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self._prefix = f"{root}{os.sep}"

    @property
    def location(self) -> str:
        return str(self.root)

    def local_path(self, path: str = "") -> Path:
        _refuse_path_outside(path)
        return self.root / path if path else self.root

    def subtree(self, folder: str) -> LocalTree:
        return LocalTree(self.local_path(folder))

    def spark_uri(self, path: str = "", *, like: str | None = None) -> str:  # noqa: ARG002  there is one scheme only
        return f"file:{self.local_path(path).absolute()}"

    def read(self, path: str) -> bytes:
        _refuse_path_outside(path)
        # A log has thousands of small files, and building a Path takes longer than reading one of them.
        with open(f"{self._prefix}{path}", "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()

    def read_blocks(self, path: str) -> Iterator[bytes]:
        with self.local_path(path).open("rb", buffering=0) as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def read_range(self, path: str, start: int, size: int) -> bytes:
        with self.local_path(path).open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(size)

    def size(self, path: str) -> int:
        return self.local_path(path).stat().st_size

    def exists(self, path: str) -> bool:
        return self.local_path(path).exists()

    def entries(self, folder: str) -> list[Entry]:
        try:
            with os.scandir(self.local_path(folder)) as found:
                listed = [_entry_of(item) for item in found]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((entry for entry in listed if entry), key=lambda entry: entry.name)

    def names(self, folder: str) -> FolderNames:
        files, folders = [], []
        try:
            with os.scandir(self.local_path(folder)) as items:
                for item in items:
                    # A link to a folder can form a cycle, or name a folder a second time.
                    if item.is_dir(follow_symlinks=False):
                        folders.append(item.name)
                    elif not item.is_dir():
                        files.append(item.name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        return FolderNames(frozenset(files), frozenset(folders))

    def tree(self, folder: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        waiting = [folder]
        while waiting:
            place = waiting.pop()
            names: list[str] = []
            try:
                with os.scandir(self.local_path(place)) as items:
                    for item in items:
                        # A link to a folder can lead outside the checkpoint, or form a cycle.
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(f"{place}/{item.name}" if place else item.name)
                        elif not item.is_dir():
                            names.append(item.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            found[place] = names
        return found

    def write(self, path: str, data: bytes) -> None:
        self.write_blocks(path, [data])

    def write_blocks(self, path: str, blocks: Iterable[bytes], modified_ms: int | None = None) -> None:
        target = self.local_path(path)
        make_folder(target.parent)
        draft = target.with_name(f".{target.name}.headwater.tmp")
        draft.unlink(missing_ok=True)  # that of a killed process may be a link to another file
        with draft.open("wb") as out:
            for block in blocks:
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if modified_ms is not None:
            os.utime(draft, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        draft.replace(target)
        _sync_folder(target.parent)

    def create(self, path: str, data: bytes) -> None:
        target = self.local_path(path)
        make_folder(target.parent)
        draft = target.with_name(f".{target.name}.headwater.tmp")
        draft.unlink(missing_ok=True)  # an earlier one may be a link to the target, which must not be overwritten
        with draft.open("xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        try:
            target.hardlink_to(draft)
        finally:
            draft.unlink()
        _sync_folder(target.parent)

    def replace(self, path: str, data: bytes, expected: bytes) -> None:
        """Replace a file. POSIX has no such operation: one that comes in between the comparison and the rename is lost."""
        try:
            found = self.read(path)
        except FileNotFoundError:
            raise FileExistsError(path) from None
        if found != expected:
            raise FileExistsError(path)
        self.write(path, data)

    def append(self, path: str, data: bytes) -> None:
        target = self.local_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as out:
            out.write(data)

    def move(self, source: str, target: str) -> None:
        _refuse_path_outside(source)
        _refuse_path_outside(target)
        old, new = f"{self._prefix}{source}", f"{self._prefix}{target}"  # thousands at a time: no Path for each
        try:
            os.rename(old, new)  # noqa: PTH104
        except FileNotFoundError:  # usually the first move into a new folder
            make_folder(Path(new).parent)
            os.rename(old, new)  # noqa: PTH104

    def copy(self, source: str, target: str) -> None:
        _copy(self.local_path(source), self.local_path(target))

    def link(self, source: str, target: str) -> None:
        _refuse_path_outside(source)
        _refuse_path_outside(target)
        old, new = f"{self._prefix}{source}", f"{self._prefix}{target}"
        try:
            os.link(old, new)
        except FileExistsError:
            if not Path(new).samefile(old):
                _link_or_copy(Path(old), Path(new))
        except FileNotFoundError:  # usually the first link in a new folder
            if not Path(old).exists():
                raise
            _link_or_copy(Path(old), Path(new))
        except OSError:  # a file system without hard links, or one that forbids this one
            _link_or_copy(Path(old), Path(new))

    def share(self, path: str, into: FileTree) -> None:
        source, target = self.local_path(path), into.local_path(path)
        if target is None:
            super().share(path, into)
            return
        make_folder(target.parent)
        try:
            target.hardlink_to(source)
        except FileExistsError:
            if not target.samefile(source):
                _link_or_copy(source, target)
        except OSError:  # another file system, or one without hard links
            _link_or_copy(source, target)

    def remove(self, path: str) -> None:
        self.local_path(path).unlink()

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(self.local_path(folder), ignore_errors=True)

    def sync_folders(self, folders: Iterable[str]) -> None:
        for folder in folders:
            if self.local_path(folder).is_dir():
                _sync_folder(self.local_path(folder))

    def own_bytes(self, folder: str) -> int:
        found, waiting = 0, [str(self.local_path(folder))]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as items:
                    for item in items:
                        if item.is_dir(follow_symlinks=False):
                            waiting.append(item.path)
                            continue
                        info = item.stat(follow_symlinks=False)
                        found += info.st_size if info.st_nlink == 1 else 0
            except (FileNotFoundError, NotADirectoryError):
                continue
        return found

    def drop_empty_folders(self, folders: Iterable[str]) -> None:
        for folder in folders:
            place = folder
            while not _has_files(self.local_path(place)):
                _remove_folders_below(self.local_path(place))
                if "/" not in place:
                    break
                with suppress(OSError):  # already removed, or another process has added a file
                    self.local_path(place).rmdir()
                place = place.rpartition("/")[0]


def _link_or_copy(source: Path, target: Path) -> None:
    """Replace a file atomically by a link or a copy of another one."""
    make_folder(target.parent)
    draft = target.with_name(f".{target.name}.headwater.tmp")
    draft.unlink(missing_ok=True)
    try:
        draft.hardlink_to(source)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, draft)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
    draft.replace(target)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _has_files(top: Path) -> bool:
    return any(names for _, _, names in os.walk(top))


def _remove_folders_below(top: Path) -> None:
    for place, _, _ in os.walk(top, topdown=False):
        if Path(place) != top:
            with suppress(OSError):  # another process has added a file
                Path(place).rmdir()


def _refuse_path_outside(path: str) -> None:
    """Refuse paths that lead outside the tree: the files of a malicious checkpoint may contain such names."""
    if path.startswith("/") or (".." in path and ".." in path.split("/")):
        raise CheckpointUnreadable(
            "path-outside",
            "the checkpoint refers to a file outside its own folder",
            evidence={"path": path},
            remedy="do not trust this checkpoint: Spark never writes such a path",
        )


def _entry_of(item: os.DirEntry[str]) -> Entry | None:
    try:
        info = item.stat()
        return Entry(item.name, item.is_dir(), info.st_size, info.st_mtime_ns // 1_000_000)
    except FileNotFoundError:  # removed since the listing, by a running query
        return None


def make_folder(folder: Path) -> None:
    """Create a folder and sync its parents, so that it is as durable as the files written into it."""
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
