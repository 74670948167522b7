"""The only code that moves a file of a checkpoint.

The invariant, at every instruction: a checkpoint is as it was, or as the change leaves it, or Spark refuses to start on
it. While files move, ``metadata`` holds a notice that no Spark version can read as a query's identity.

1. ``_headwater/pending.json`` says all that is going to be done (phase *begun*).
2. The notice takes the place of ``metadata``: the guard is up.
3. The steps, each of which can be done again without harm.
4. ``pending.json`` says *done*, the guard comes down, the journal gets its entry, ``pending.json`` goes.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headwater.checkpoint.files import Files
from headwater.checkpoint.layout import METADATA, PENDING_FILE, hadoop_crc_of
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.timemachine.change import Change, Move, MoveFence, Put, Root, Step
from headwater.timemachine.journal import Entry, Pending, read_entries, read_pending, write_entry

METADATA_CRC = hadoop_crc_of(METADATA)
Progress = Callable[[int, int], None]
FenceSetter = Callable[[MoveFence, int], None]


def no_progress(done: int, of: int) -> None:
    """The default: nobody is watching."""


def no_fence(step: MoveFence, batch_id: int) -> None:  # noqa: ARG001
    raise ValueError("this change moves a PostgreSQL fence: give the executor a way to do so")


@dataclass(frozen=True)
class Executor:
    """Carries changes out on the trees that they name."""

    roots: Mapping[Root, Files]
    set_fence: FenceSetter = no_fence
    progress: Progress = no_progress

    @property
    def checkpoint(self) -> Files:
        return self.roots["checkpoint"]

    def apply(self, change: Change) -> Entry:
        """Do all of it. The caller holds the lease and has checked the change's fingerprint."""
        refuse_if_pending(self.checkpoint)
        pending = Pending(
            "begun", change, _now_ms(), _held(self.checkpoint, METADATA), _held(self.checkpoint, METADATA_CRC)
        )
        self.checkpoint.write(PENDING_FILE, pending.to_bytes())
        return self._carry_on(pending)

    def resume(self) -> Entry:
        """Finish the change that was cut short."""
        return self._carry_on(self._pending())

    def abort(self) -> Change:
        """Take back the part that was done of the change that was cut short."""
        pending = self._pending()
        if pending.phase == "done":
            raise ChangeRefused(
                "already-done",
                f"the interrupted {pending.change.verb} had done all of its work: it cannot be taken back halfway",
                remedy="headwater rewind CKPT --resume, then headwater undo CKPT",
            )
        if self._guard_is_up(pending):
            for step in reversed(pending.change.steps):
                self._take_back(step)
            self._sync(pending.change)
            self._lower_guard(pending)
        self.checkpoint.remove(PENDING_FILE)
        return pending.change

    def _carry_on(self, pending: Pending) -> Entry:
        change = pending.change
        if pending.phase == "begun":
            self._raise_guard(pending)
            for number, step in enumerate(change.steps, start=1):
                self._do(step)
                self.progress(number, len(change.steps))
            self._sync(change)
            pending = replace(pending, phase="done")
            self.checkpoint.write(PENDING_FILE, pending.to_bytes())
        self._lower_guard(pending)
        entry = self._journalled(change) or write_entry(self.checkpoint, change, _now_ms())
        self.checkpoint.remove(PENDING_FILE)
        return entry

    def _pending(self) -> Pending:
        pending = read_pending(self.checkpoint)
        if pending is None:
            raise ChangeRefused(
                "nothing-pending",
                "no change of this checkpoint was cut short",
                evidence={"checkpoint": self.checkpoint.location},
            )
        return pending

    def _journalled(self, change: Change) -> Entry | None:
        found = [entry for entry in read_entries(self.checkpoint) if entry.change.change_id == change.change_id]
        return found[-1] if found else None

    def _raise_guard(self, pending: Pending) -> None:
        if self.checkpoint.exists(METADATA_CRC):
            self.checkpoint.remove(METADATA_CRC)
        self.checkpoint.write(METADATA, notice(pending.change))

    def _guard_is_up(self, pending: Pending) -> bool:
        return _held(self.checkpoint, METADATA) == _text(notice(pending.change))

    def _lower_guard(self, pending: Pending) -> None:
        # The checksum first: as long as it does not fit, Spark still refuses.
        if pending.metadata_crc is not None:
            self.checkpoint.write(METADATA_CRC, base64.b64decode(pending.metadata_crc))
        if pending.metadata is not None:
            self.checkpoint.write(METADATA, base64.b64decode(pending.metadata))
        elif self.checkpoint.exists(METADATA):
            self.checkpoint.remove(METADATA)

    def _do(self, step: Step) -> None:
        match step:
            case Move():
                _move(self.roots[step.root], step.source, step.target)
            case Put():
                self.roots[step.root].write(step.path, step.data)
            case MoveFence():
                self.set_fence(step, step.batch_id)

    def _take_back(self, step: Step) -> None:
        match step:
            case Move():
                files = self.roots[step.root]
                if files.exists(step.target):
                    _move(files, step.target, step.source)
            case Put():
                files = self.roots[step.root]
                if files.exists(step.path):
                    files.remove(step.path)
            case MoveFence():
                self.set_fence(step, step.before)

    def _sync(self, change: Change) -> None:
        """Renames must be on the disk before the guard comes down."""
        for root, files in self.roots.items():
            folders: set[str] = set()
            for step in change.steps:
                if isinstance(step, Move) and step.root == root:
                    folders |= {step.source.rpartition("/")[0], step.target.rpartition("/")[0]}
            files.sync_folders(folders)


def refuse_if_pending(files: Files) -> None:
    """Every changing verb, and ``run``, asks this first."""
    pending = read_pending(files)
    if pending is None:
        return
    raise ChangeRefused(
        "interrupted-operation",
        f"a {pending.change.verb} of this checkpoint was cut short",
        evidence={"checkpoint": files.location, "it was to": pending.change.about},
        remedy=f"headwater rewind {files.location} --resume   (or --abort to take it back)",
    )


def notice(change: Change) -> bytes:
    """What stands in ``metadata`` while files move. It is no JSON, so that Spark cannot take it for an identity."""
    return (
        f"headwater: a {change.verb} of this checkpoint is not finished; run: headwater rewind CKPT --resume\n".encode()
    )


def _move(files: Files, source: str, target: str) -> None:
    try:
        files.move(source, target)
    except FileNotFoundError:
        if files.exists(target):  # done before the change was cut short
            return
        raise CheckpointUnreadable(
            "file-vanished",
            f"{source} is gone, and {target} is not there either",
            evidence={"checkpoint": files.location},
            remedy=f"headwater rewind {files.location} --abort",
        ) from None


def _held(files: Files, path: str) -> str | None:
    try:
        return _text(files.read(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _now_ms() -> int:
    return int(time.time() * 1000)
