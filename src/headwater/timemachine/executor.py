"""Apply changes. This is the only code that moves files of a checkpoint.

The invariant, at every instruction: the checkpoint is as it was before the change, or as the change leaves it, or Spark
refuses to start on it. While files are being moved, ``metadata`` contains a notice that no Spark version accepts as the
identity of a query.

1. ``_headwater/pending.json`` records all steps.
2. The notice replaces ``metadata``: the guard is up.
3. The steps are done, stage by stage; ``pending.json`` records the current stage. A commit to a table is a stage of its
   own: the last one of a rewind, the first one of an undo. A checkpoint that is ahead of its table loses rows, one that
   is behind it does not.
4. The guard is removed, the journal gets an entry, and ``pending.json`` is deleted. An erasure deletes what it set aside
   before that.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import (
    HEADWATER_FOLDER,
    METADATA,
    PENDING_FILE,
    SINK_LOG,
    hadoop_crc_of,
    parent_and_name,
)
from headwater.checkpoint.lease import hold_lease
from headwater.core.current_user import current_user
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.lakehouse.tables import RewindableTable
from headwater.timemachine.change import (
    Change,
    CommitToTable,
    Link,
    Move,
    Put,
    Root,
    Step,
    fingerprint,
    quarantine_of,
    scratch_of,
)
from headwater.timemachine.erased import delete_erased
from headwater.timemachine.journal import Entry, Pending, entry_of, read_pending, refuse_if_pending, write_entry

METADATA_CRC = hadoop_crc_of(METADATA)
Progress = Callable[[int, int], None]
OpenTable = Callable[[str], RewindableTable | None]


def no_progress(done: int, of: int) -> None:
    """Ignore progress."""


def apply_change(
    change: Change,
    files: FileTree,
    sink: FileTree | None = None,
    *,
    table: RewindableTable | None = None,
    progress: Progress = no_progress,
    by: str | None = None,
) -> Entry:
    """Apply a change under the lease. If this raises ``CheckpointBusy`` or ``ChangeRefused``, nothing has moved.

    ``by`` is who makes the change, as the journal records it; by default the user of this process.
    """
    change = replace(change, details={"by": current_user(), **change.details, **({"by": by} if by else {})})
    with hold_lease(files, f"headwater {change.verb}", f"cannot {change.verb}"):
        return executor_for(files, sink, table, progress=progress).apply(change)


def executor_for(
    files: FileTree,
    sink: FileTree | None,
    table: RewindableTable | None = None,
    *,
    progress: Progress = no_progress,
) -> Executor:
    """Return an executor for a checkpoint and its sink.

    A location that comes from the checkpoint alone cannot be trusted, so the sink has to be a folder that Spark's file
    sink or Headwater has written to.
    """
    roots: dict[Root, FileTree] = {"checkpoint": files}
    if sink is not None:
        if not (sink.entries(SINK_LOG) or sink.entries(HEADWATER_FOLDER)):
            raise ChangeRefused(
                "not-a-sink",
                "the folder that the checkpoint names as its sink is not a file sink",
                evidence={"folder": sink.location, "missing": SINK_LOG},
                remedy="if you moved the sink, move it back; otherwise do not trust this checkpoint",
            )
        roots["sink"] = sink
    return Executor(roots, progress, table)


@dataclass(frozen=True)
class Executor:
    """Applies changes to the trees and the table that they name. The caller holds the lease."""

    roots: Mapping[Root, FileTree]
    progress: Progress = no_progress
    table: RewindableTable | None = None

    @property
    def checkpoint(self) -> FileTree:
        """The tree of the checkpoint."""
        return self.roots["checkpoint"]

    def apply(self, change: Change, *, in_cascade: bool = False) -> Entry:
        """Apply a change. Raise ``ChangeRefused``, with nothing moved, if the checkpoint has changed since planning."""
        _require_own_places(change)
        refuse_if_pending(self.checkpoint, in_cascade=in_cascade)
        self._refuse_if_stale(change, "stop the query and run the command again")
        metadata, crc = _encoded(self.checkpoint, METADATA), _encoded(self.checkpoint, METADATA_CRC)
        pending = self._record(Pending(0, change, _now_ms(), metadata, crc))
        # Only now: from here on the files of a restore point cannot be dropped.
        self._refuse_if_unlinkable(change)
        with noting_interruption(change.verb, self.checkpoint.location):
            return self._finish(pending)

    def resume(self) -> Entry:
        """Finish the interrupted change."""
        pending = self._pending()
        if not pending.all_done and not self._guard_is_up(pending):
            # No step was done yet, and nothing has kept the query from continuing.
            self._refuse_if_stale(pending.change, f"headwater rewind {self.checkpoint.location} --abort")
        return self._finish(pending)

    def abort(self) -> Change:
        """Roll back the steps of the interrupted change that were done."""
        pending = self._pending()
        if pending.all_done and not self._guard_is_up(pending):
            location = self.checkpoint.location
            changed = pending.change.details.get("original", location)  # a promotion is undone with its original
            raise ChangeRefused(
                "already-done",
                f"all steps of the interrupted {pending.change.verb} were completed, and a query may have run since",
                remedy=f"headwater rewind {location} --resume && headwater undo {changed}",
            )
        parts = pending.change.stages
        if self._guard_is_up(pending):
            for number in range(min(pending.stage, len(parts) - 1), -1, -1):
                if number != pending.stage:
                    pending = self._record(replace(pending, stage=number))
                for step in reversed(parts[number]):
                    self._roll_back(step)
                self._sync(parts[number])
                self._drop_empty_folders(parts[number])
        self._lower_guard(pending)
        self.checkpoint.remove(PENDING_FILE)
        self._remove_scratch(pending.change)
        return pending.change

    def _finish(self, pending: Pending) -> Entry:
        change = pending.change
        parts = change.stages
        if not pending.all_done:
            self._raise_guard(pending)
            done = sum(len(part) for part in parts[: pending.stage])
            for number in range(pending.stage, len(parts)):
                for step in parts[number]:
                    self._do(step)
                    done += 1
                    self.progress(done, len(change.steps))
                self._sync(parts[number])
                self._drop_empty_folders(parts[number])
                pending = self._record(replace(pending, stage=number + 1))
        self._lower_guard(pending)
        entry = entry_of(self.checkpoint, change) or write_entry(self.checkpoint, change, _now_ms())
        # Before the record of the change is removed, so that an interruption does not leave what was to be erased.
        delete_erased(self.checkpoint, change)
        self.checkpoint.remove(PENDING_FILE)
        self._remove_scratch(change)
        return entry

    def _remove_scratch(self, change: Change) -> None:
        if change.uses_scratch:
            for files in self.roots.values():
                files.remove_folder(scratch_of(change.change_id))

    def _record(self, pending: Pending) -> Pending:
        self.checkpoint.write(PENDING_FILE, pending.to_bytes())
        return pending

    def _pending(self) -> Pending:
        pending = read_pending(self.checkpoint)
        if pending is None:
            raise ChangeRefused(
                "nothing-pending",
                "no change of this checkpoint was interrupted",
                evidence={"checkpoint": self.checkpoint.location},
            )
        return pending

    def _refuse_if_stale(self, change: Change, remedy: str) -> None:
        if change.fingerprint and change.fingerprint != fingerprint(
            self.checkpoint, self.roots.get("sink"), self.table
        ):
            what = "the checkpoint or its table" if self.table else "the checkpoint"
            raise ChangeRefused(
                "plan-stale",
                f"{what} has changed since this {change.verb} was planned",
                evidence={"checkpoint": self.checkpoint.location},
                remedy=remedy,
            )

    def _refuse_if_unlinkable(self, change: Change) -> None:
        """Raise ``ChangeRefused``, with nothing moved, if a file to link does not exist."""
        made = {(step.root, step.target) for step in change.steps if isinstance(step, Link)}
        missing = next(
            (
                step.source
                for step in change.steps
                if isinstance(step, Link)
                and (step.root, step.source) not in made
                and not self.roots[step.root].exists(step.source)
            ),
            None,
        )
        if missing is None:
            return
        self.checkpoint.remove(PENDING_FILE)
        raise ChangeRefused(
            "kept-incomplete",
            f"cannot {change.verb}: a file of the restore point is missing",
            evidence={"missing": missing, "checkpoint": self.checkpoint.location},
            remedy=f"headwater fsck {self.checkpoint.location}",
        )

    def _raise_guard(self, pending: Pending) -> None:
        if self.checkpoint.exists(METADATA_CRC):
            self.checkpoint.remove(METADATA_CRC)
        self.checkpoint.write(METADATA, guard_notice(pending.change))

    def _guard_is_up(self, pending: Pending) -> bool:
        return _encoded(self.checkpoint, METADATA) == _base64(guard_notice(pending.change))

    def _lower_guard(self, pending: Pending) -> None:
        # The checksum first: while it does not match, Spark still refuses to start.
        if pending.metadata_crc is not None:
            self.checkpoint.write(METADATA_CRC, base64.b64decode(pending.metadata_crc))
        if pending.metadata is not None:
            self.checkpoint.write(METADATA, base64.b64decode(pending.metadata))
        elif self._guard_is_up(pending):
            self.checkpoint.remove(METADATA)

    def _do(self, step: Step) -> None:
        match step:
            case Move():
                _move(self.roots[step.root], step.source, step.target)
            case Put():
                self.roots[step.root].write(step.path, step.data)
            case CommitToTable():
                self._table().apply(step.action)
            case Link():
                self.roots[step.root].link(step.source, step.target)

    def _roll_back(self, step: Step) -> None:
        match step:
            case Move():
                files = self.roots[step.root]
                if files.exists(step.target):
                    _move(files, step.target, step.source)
            case Put():
                files = self.roots[step.root]
                # Writing first replaces the temporary file that an interrupted write may have left.
                files.write(step.path, step.data)
                files.remove(step.path)
            case Link():
                self.roots[step.root].link(step.source, step.target)
                self.roots[step.root].remove(step.target)
            case CommitToTable():
                self._table().take_back(step.action)

    def _table(self) -> RewindableTable:
        if self.table is None:
            raise ValueError("the change has a step for a table, but none was given")
        return self.table

    def _sync(self, steps: Iterable[Step]) -> None:
        """Make the moves durable before they are recorded as done."""
        for root, folders in _folders(steps).items():
            self.roots[root].sync_folders(sorted(folders))

    def _drop_empty_folders(self, steps: Iterable[Step]) -> None:
        """Remove folders that have become empty: Spark starts from scratch only if no state folder is left."""
        for root, folders in _folders(steps).items():
            self.roots[root].drop_empty_folders(sorted(folders, reverse=True))


@contextmanager
def noting_interruption(verb: str, location: str) -> Iterator[None]:
    """Note on a Ctrl-C what it leaves unfinished, and how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.__notes__ = [
            f"stopped: the {verb} of {location} is not finished\n"
            f"help: headwater rewind {location} --resume   (or --abort to roll it back)"
        ]
        raise


def guard_notice(change: Change) -> bytes:
    """Return the contents of ``metadata`` while files are moved. It is not JSON, so Spark cannot parse it.

    Spark's error message shows only the first word, so that word is a long one.
    """
    return (
        f"headwater_{change.verb}_was_interrupted__run_headwater_fsck\n"
        f"A {change.verb} of this checkpoint is not finished. To finish it: headwater rewind CKPT --resume\n"
    ).encode()


def _folders(steps: Iterable[Step]) -> dict[Root, set[str]]:
    """Return the folders that gain or lose files."""
    found: dict[Root, set[str]] = {}
    for step in steps:
        for root, path in step.touches:
            found.setdefault(root, set()).add(parent_and_name(path)[0])
    return found


def _require_own_places(change: Change) -> None:
    """Raise ``ValueError`` if two files would be set aside at one path: the first of them would be lost."""
    quarantine = f"{quarantine_of(change.change_id)}/"
    places = [
        (step.root, step.target)
        for step in change.steps
        if isinstance(step, Move) and step.target.startswith(quarantine)
    ]
    if len(set(places)) < len(places):
        raise ValueError(f"the plan of {change.change_id} sets two files aside at the same path")


def _move(files: FileTree, source: str, target: str) -> None:
    try:
        files.move(source, target)
    except FileNotFoundError:
        if files.exists(target):  # moved before the interruption
            return
        raise CheckpointUnreadable(
            "file-vanished",
            f"cannot move {source} to {target}: neither file exists",
            evidence={"checkpoint": files.location},
            remedy=f"headwater rewind {files.location} --abort",
        ) from None


def _encoded(files: FileTree, path: str) -> str | None:
    try:
        return _base64(files.read(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _now_ms() -> int:
    return int(time.time() * 1000)
