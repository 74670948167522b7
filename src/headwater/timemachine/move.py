"""Move a checkpoint, and the folders of its file sources and sink, to another folder, disk or object store.

Everything is copied, with the absolute paths in it rewritten, and read back. Only then does the old location get a pointer
to the new one, and only then can the query be started at the new one. Until that moment the old checkpoint is as it was;
after an interruption the same command continues. The old files stay, so that ``undo`` is possible.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.filetree import Entry, FileTree, walk
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import HEADWATER_FOLDER, METADATA, covered_by_hadoop_crc, is_temporary, parent_and_name
from headwater.checkpoint.lease import ENDED, LOCK, RECORD, hold_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.moved import (
    INCOMPLETE,
    INCOMPLETE_NOTICE,
    METADATA_CRC,
    MOVED_NOTICE,
    ORIGIN,
    POINTER,
    MovedTo,
    Moving,
    encoded_metadata,
    read_pointer,
    replace_metadata,
)
from headwater.checkpoint.restore_points import FOLDER as KEPT
from headwater.checkpoint.restore_points import LIST_SUFFIX
from headwater.checkpoint.stop_request import ANSWER, REQUEST
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.timemachine.change import SCRATCH, Change, fingerprint
from headwater.timemachine.executor import Progress, no_progress
from headwater.timemachine.journal import Entry as JournalEntry
from headwater.timemachine.journal import entry_of, newest_number, write_entry
from headwater.timemachine.relocate import ModifiedMs, Place, Relocation, is_rewritten, rewritten

WORKERS = 8
_OF_THIS_PLACE = (LOCK, RECORD, ENDED, REQUEST, ANSWER, POINTER, INCOMPLETE, ORIGIN, METADATA, METADATA_CRC)


@dataclass(frozen=True)
class FolderMove:
    """A folder that moves along: ``roles`` are what it is to the query, such as ``sink`` or ``source 0``."""

    old: FileTree = field(repr=False)
    new: FileTree = field(repr=False)
    roles: tuple[str, ...]
    files: int
    bytes: int
    created: bool
    """Whether the new folder is missing or empty, or was when an interrupted move began."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        places = {"from": self.old.location, "to": self.new.location}
        return {**places, "roles": list(self.roles), "files": self.files, "bytes": self.bytes}


@dataclass(frozen=True)
class MovePlan:
    """A move that was planned. ``stays`` are folders that the query uses and that are not moved."""

    files: FileTree = field(repr=False)
    into: FileTree = field(repr=False)
    move_id: str
    file_count: int
    bytes: int
    rewritten: tuple[str, ...]
    folders: tuple[FolderMove, ...]
    stays: tuple[str, ...]
    warnings: tuple[str, ...]
    signs_of_life: tuple[str, ...]
    fingerprint: str
    resumes: bool
    """Whether an interrupted move to the same place is continued."""
    workers: int = WORKERS

    @property
    def location(self) -> str:
        """The path or URL of the checkpoint."""
        return self.files.location

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "from": self.files.location,
            "to": self.into.location,
            "files": self.file_count,
            "bytes": self.bytes,
            "rewritten": list(self.rewritten),
            "folders": [folder.as_dict() for folder in self.folders],
            "stays": list(self.stays),
            "resumes": self.resumes,
            "warnings": list(self.warnings),
            "signs_of_life": list(self.signs_of_life),
        }

    def apply(self, progress: Progress = no_progress) -> JournalEntry:
        """Move the checkpoint. The query has to be stopped.

        Raise ``CheckpointBusy`` if another process holds the lease, and ``ChangeRefused``, with the old location as it was,
        if the checkpoint has changed since the plan was made or a copy cannot be verified.
        """
        with hold_lease(self.files, "headwater move", "cannot move"):
            return self.carry_out(progress)

    def carry_out(self, progress: Progress = no_progress) -> JournalEntry:
        """Do what ``apply`` does. The caller holds the lease."""
        pointer = read_pointer(self.files)
        if pointer is None:
            if self.fingerprint != fingerprint(self.files, None):
                raise ChangeRefused(
                    "plan-stale",
                    "the checkpoint has changed since this move was planned",
                    evidence={"checkpoint": self.files.location},
                    remedy="stop the query and run the command again",
                )
            self._copy_all(progress)
            pointer = self._pointer()
            self.files.write(POINTER, pointer.to_bytes())
        replace_metadata(self.files, MOVED_NOTICE)
        change = Change(pointer.move_id, "move", f"move to {pointer.to}", (), details={"to": pointer.to})
        entry = entry_of(self.files, change) or write_entry(self.files, change, pointer.moved_at_ms)
        self._open_destination(pointer)
        return entry

    def _pointer(self) -> MovedTo:
        history = History(self.files)
        return MovedTo(
            self.into.location,
            self.move_id,
            time.time_ns() // 1_000_000,
            max(history.batch_ids, default=None),
            newest_number(self.files),
            *encoded_metadata(self.files),
            {folder.old.location: folder.new.location for folder in self.folders},
        )

    def _open_destination(self, pointer: MovedTo) -> None:
        """Let queries start at the new location."""
        self.into.write(ORIGIN, self._record().to_bytes())
        if pointer.metadata is not None:
            self.into.write(METADATA, base64.b64decode(pointer.metadata))
        else:
            self.into.remove(METADATA)
        if self.into.exists(INCOMPLETE):
            self.into.remove(INCOMPLETE)

    def _record(self) -> Moving:
        moved = {folder.old.location: folder.new.location for folder in self.folders}
        created = tuple(folder.new.location for folder in self.folders if folder.created)
        return Moving(self.files.location, self.move_id, moved, created)

    def _copy_all(self, progress: Progress) -> None:
        self.into.write(INCOMPLETE, self._record().to_bytes())
        self.into.write(METADATA, INCOMPLETE_NOTICE)
        moves = self.relocation
        steps = _Steps(progress, self.file_count + sum(folder.files for folder in self.folders))
        stamps: dict[Place, int | None] = {}
        for folder in self.folders:
            copier = _Copier(folder.old, folder.new, moves, steps, self.workers, may_replace=folder.created)
            copier.copy(paths_of_folder(folder.old, self.files))
            if folder.created and self.resumes:  # the old folder may have lost files since the first attempt
                copier.remove_others(beside=self.into)
            stamps |= dict(_stamps(folder.new))
        modified = lambda uri: stamps.get(Place.of(uri, encoded=True))  # noqa: E731
        copier = _Copier(self.files, self.into, moves, steps, self.workers, may_replace=True, modified_ms=modified)
        copier.copy(paths_of_checkpoint(self.files, keep_crc=self.into.is_local))
        copier.remove_others()
        _refuse_other_batches(self.files, self.into)

    @property
    def relocation(self) -> Relocation:
        """Which paths change how."""
        return relocation_of(self.files, self.into, [(folder.old, folder.new) for folder in self.folders])


def absolute(files: FileTree) -> FileTree:
    """Return a tree whose location is valid in every working directory: it is recorded at the other place."""
    local = files.local_path()
    return files if local is None else LocalTree(local.absolute())


def relocation_of(files: FileTree, into: FileTree, folders: Iterable[tuple[FileTree, FileTree]]) -> Relocation:
    """Return which paths change how if a checkpoint and some folders move."""
    pairs = [(files, into), *folders]
    return Relocation(into, tuple((Place.of(old.spark_uri()), new) for old, new in pairs))


def paths_of_checkpoint(files: FileTree, *, keep_crc: bool) -> dict[str, Entry]:
    """Return the files of a checkpoint that move, without those that belong to a process or to this place."""
    return {
        path: entry
        for path, entry in walk(files)
        if path not in _OF_THIS_PLACE
        and not path.startswith(f"{SCRATCH}/")
        and not is_temporary(entry.name)
        and (keep_crc or covered_by_hadoop_crc(path) is None)
    }


def paths_of_folder(folder: FileTree, checkpoint: FileTree) -> dict[str, Entry]:
    """Return the files of a folder that move along, without a checkpoint inside of it."""
    prefix = path_inside(folder, checkpoint)
    return {
        path: entry
        for path, entry in walk(folder)
        if not is_temporary(entry.name) and not (prefix and path.startswith(prefix))
    }


def path_inside(folder: FileTree, other: FileTree) -> str | None:
    """Return what the paths of a tree begin with in a folder that contains it, with a slash at the end; otherwise None."""
    root, inside = Place.of(folder.spark_uri()), Place.of(other.spark_uri())
    return "/".join(inside.parts[len(root.parts) :]) + "/" if root.contains(inside) else None


@dataclass
class _Steps:
    """Counts the files that are done."""

    progress: Progress
    of: int
    done: int = 0

    def one(self) -> None:
        self.done += 1
        self.progress(min(self.done, self.of), self.of)


@dataclass
class _Copier:
    """Copies files from one tree to another, rewrites paths in them, and reads every copy back."""

    old: FileTree
    new: FileTree
    moves: Relocation
    steps: _Steps
    workers: int
    may_replace: bool
    modified_ms: ModifiedMs = lambda _: None
    _wanted: dict[str, Entry] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    """The sizes of rewritten files by path: restore points list the sizes of their files."""

    def copy(self, paths: Mapping[str, Entry]) -> None:
        """Copy files. What has the right contents already is left as it is."""
        present = {path: entry.size for path, entry in walk(self.new)}
        stale = {path for path in paths if covered_by_hadoop_crc(path) and self._changes(covered_by_hadoop_crc(path))}
        self._wanted = {path: entry for path, entry in paths.items() if path not in stale}
        lists = [path for path in self._wanted if path.startswith(f"{KEPT}/") and path.endswith(LIST_SUFFIX)]
        plain = [path for path in self._wanted if path not in lists]
        self._each(plain, present)
        self._each(lists, present)

    def _each(self, paths: Iterable[str], present: Mapping[str, int]) -> None:
        if self.workers == 1:
            for path in paths:
                self._copy_one(path, present)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            for _ in pool.map(lambda path: self._copy_one(path, present), paths):
                pass

    def remove_others(self, *, beside: FileTree | None = None) -> None:
        """Remove what an interrupted move has copied and the checkpoint does not have any more.

        ``beside`` is a checkpoint that may be inside the new folder: it stays.
        """
        inside = None if beside is None else path_inside(self.new, beside)
        for path, _ in list(walk(self.new)):
            is_beside = inside is not None and path.startswith(inside)
            if path not in self._wanted and path not in _OF_THIS_PLACE and not is_beside:
                self.new.remove(path)

    def _changes(self, path: str | None) -> bool:
        """Return whether a file is rewritten, so that its Hadoop checksum becomes wrong."""
        if path is None or not is_rewritten(path):
            return False
        try:
            data = self.old.read(path)
        except FileNotFoundError:
            return False
        return self._rewritten(path, data) != data

    def _rewritten(self, path: str, data: bytes) -> bytes:
        return rewritten(path, data, self.moves, self.modified_ms)

    def _copy_one(self, path: str, present: Mapping[str, int]) -> None:
        entry = self._wanted[path]
        if path.startswith(f"{KEPT}/") and path.endswith(LIST_SUFFIX):
            data: bytes | None = self._list_of_point(path)
        else:
            data = self._rewritten(path, self.old.read(path)) if is_rewritten(path) else None
        expected = hashlib.sha256(data).hexdigest() if data is not None else _digest(self.old, path)
        if path not in present or _digest(self.new, path) != expected:
            if path in present and not self.may_replace and _digest(self.new, path) != _digest(self.old, path):
                raise ChangeRefused(
                    "folder-differs",
                    f"cannot move into {self.new.location}: a file there has other contents",
                    evidence={"file": path, "from": self.old.location},
                    remedy="choose another folder, or remove the file first",
                )
            blocks = [data] if data is not None else self.old.read_blocks(path)
            self.new.write_blocks(path, blocks, entry.modified_ms)
            if _digest(self.new, path) != expected:
                raise CheckpointUnreadable(
                    "copy-differs",
                    f"the copy of {path} differs from the original",
                    evidence={"from": self.old.location, "to": self.new.location},
                    remedy="check the disk or the store, then run the same command again",
                )
        if data is not None:
            self._sizes[path] = len(data)
        self.steps.one()

    def _list_of_point(self, path: str) -> bytes:
        """Return the list of a restore point's files with the sizes of the rewritten ones, and without stale checksums."""
        data, folder = self.old.read(path), parent_and_name(path)[0]
        try:
            listed: dict[str, int] = json.loads(data)
        except ValueError:
            return data
        sizes = {name: self._sizes.get(f"{folder}/{name}", size) for name, size in listed.items()}
        kept = {name: size for name, size in sizes.items() if f"{folder}/{name}" in self._wanted}
        return data if kept == listed else json.dumps(kept).encode()


def _stamps(folder: FileTree) -> Iterator[tuple[Place, int | None]]:
    root = Place.of(folder.spark_uri())
    for path, entry in walk(folder):
        if not path.startswith(f"{HEADWATER_FOLDER}/"):
            yield Place(root.store, (*root.parts, *path.split("/"))), entry.modified_ms


def _refuse_other_batches(files: FileTree, into: FileTree) -> None:
    before, after = History(files), History(into)
    same = before.batch_ids == after.batch_ids and before.last_committed == after.last_committed
    if not same or any(before.batch(one).why_not != after.batch(one).why_not for one in before.batch_ids[-2:]):
        raise CheckpointUnreadable(
            "copy-differs",
            "the copy does not have the same batches as the checkpoint",
            evidence={"from": files.location, "to": into.location},
            remedy="run the same command again",
        )


def _digest(files: FileTree, path: str) -> str:
    found = hashlib.sha256()
    for block in files.read_blocks(path):
        found.update(block)
    return found.hexdigest()
