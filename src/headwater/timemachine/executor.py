"""The only code that moves a file of a checkpoint.

The invariant, at every instruction: a checkpoint is as it was, or as the change leaves it, or Spark refuses to start on
it. While files move, ``metadata`` holds a notice that no Spark version can read as a query's identity.

1. ``_headwater/pending.json`` says all that is going to be done.
2. The notice takes the place of ``metadata``: the guard is up.
3. The steps, stage by stage; ``pending.json`` says which stage is being worked on.
4. The guard comes down, the journal gets its entry, ``pending.json`` goes.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import METADATA, OURS, PENDING_FILE, SINK_LOG, hadoop_crc_of
from headwater.checkpoint.lease import held_by_us
from headwater.checkpoint.locate import open_files
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.timemachine.change import Change, Move, Put, Root, Step, fingerprint
from headwater.timemachine.journal import Entry, Pending, entry_of, read_pending, write_entry

METADATA_CRC = hadoop_crc_of(METADATA)
Progress = Callable[[int, int], None]


def no_progress(done: int, of: int) -> None:
    """The default: nobody is watching."""


@dataclass(frozen=True)
class Executor:
    """Carries changes out on the trees that they name. The caller holds the lease."""

    roots: Mapping[Root, FileTree]
    progress: Progress = no_progress

    @property
    def checkpoint(self) -> FileTree:
        return self.roots["checkpoint"]

    def apply(self, change: Change) -> Entry:
        """Do all of it; refused, with nothing moved, when the checkpoint is not the one that it was planned for."""
        refuse_if_pending(self.checkpoint)
        self._refuse_if_stale(change, "stop the query and make the plan again")
        metadata, crc = _held(self.checkpoint, METADATA), _held(self.checkpoint, METADATA_CRC)
        return self._carry_on(self._record(Pending(0, change, _now_ms(), metadata, crc)))

    def resume(self) -> Entry:
        """Finish the change that was cut short."""
        pending = self._pending()
        if not pending.all_done and not self._guard_is_up(pending):
            # Nothing was done yet, and nothing kept a query from going on in the meantime.
            self._refuse_if_stale(pending.change, f"headwater rewind {self.checkpoint.location} --abort")
        return self._carry_on(pending)

    def abort(self) -> Change:
        """Take back the part that was done of the change that was cut short."""
        pending = self._pending()
        if pending.all_done and not self._guard_is_up(pending):
            raise ChangeRefused(
                "already-done",
                f"the interrupted {pending.change.verb} had done all of its work, and a query may have run since",
                remedy=f"headwater rewind {self.checkpoint.location} --resume, then headwater undo",
            )
        parts = pending.change.stages
        if self._guard_is_up(pending):
            for number in range(min(pending.stage, len(parts) - 1), -1, -1):
                if number != pending.stage:
                    pending = self._record(replace(pending, stage=number))
                for step in reversed(parts[number]):
                    self._take_back(step)
                self._sync(parts[number])
                self._drop_empty_folders(parts[number])
        self._lower_guard(pending)
        self.checkpoint.remove(PENDING_FILE)
        return pending.change

    def _carry_on(self, pending: Pending) -> Entry:
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
        self.checkpoint.remove(PENDING_FILE)
        return entry

    def _record(self, pending: Pending) -> Pending:
        self.checkpoint.write(PENDING_FILE, pending.to_bytes())
        return pending

    def _pending(self) -> Pending:
        pending = read_pending(self.checkpoint)
        if pending is None:
            raise ChangeRefused(
                "nothing-pending",
                "no change of this checkpoint was cut short",
                evidence={"checkpoint": self.checkpoint.location},
            )
        return pending

    def _refuse_if_stale(self, change: Change, remedy: str) -> None:
        if change.fingerprint and change.fingerprint != fingerprint(self.checkpoint, self.roots.get("sink")):
            raise ChangeRefused(
                "plan-stale",
                f"the checkpoint has changed since this {change.verb} was planned",
                evidence={"checkpoint": self.checkpoint.location},
                remedy=remedy,
            )

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
        elif self._guard_is_up(pending):
            self.checkpoint.remove(METADATA)

    def _do(self, step: Step) -> None:
        files = self.roots[step.root]
        match step:
            case Move():
                _move(files, step.source, step.target)
            case Put():
                files.write(step.path, step.data)

    def _take_back(self, step: Step) -> None:
        files = self.roots[step.root]
        match step:
            case Move():
                if files.exists(step.target):
                    _move(files, step.target, step.source)
            case Put():
                # Written first, so that the draft which an interrupted write may have left goes with it.
                files.write(step.path, step.data)
                files.remove(step.path)

    def _sync(self, steps: Iterable[Step]) -> None:
        """Moves must be on the disk before anybody is told that they are done."""
        for root, folders in _folders(steps).items():
            self.roots[root].sync_folders(sorted(folders))

    def _drop_empty_folders(self, steps: Iterable[Step]) -> None:
        """A stream starts from nothing only where not even empty folders of state are left."""
        for root, folders in _folders(steps).items():
            self.roots[root].drop_empty_folders(sorted(folders, reverse=True))


def _folders(steps: Iterable[Step]) -> dict[Root, set[str]]:
    """Where files came or went."""
    found: dict[Root, set[str]] = {}
    for step in steps:
        for root, path in step.touches:
            found.setdefault(root, set()).add(path.rpartition("/")[0])
    return found


def refuse_if_pending(files: FileTree) -> None:
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
    """What stands in ``metadata`` while files move. It is no JSON, so that Spark cannot take it for an identity.

    Spark's message shows the first word of it, so that word is a long one.
    """
    return (
        f"headwater_{change.verb}_was_cut_short__run_headwater_fsck\n"
        f"A {change.verb} of this checkpoint is not finished. To finish it: headwater rewind CKPT --resume\n"
    ).encode()


def _move(files: FileTree, source: str, target: str) -> None:
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


def _held(files: FileTree, path: str) -> str | None:
    try:
        return _text(files.read(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _now_ms() -> int:
    return int(time.time() * 1000)


def carry_out(
    change: Change, files: FileTree, sink: FileTree | None = None, *, progress: Progress = no_progress
) -> Entry:
    """Do a change under the lease. Nothing has moved when this raises ``CheckpointBusy`` or ``ChangeRefused``."""
    with held_by_us(files, f"headwater {change.verb}", f"cannot {change.verb}"):
        return executor_for(files, sink, progress=progress).apply(change)


def resume(files: FileTree, *, progress: Progress = no_progress) -> Entry:
    """Finish a change that was cut short."""
    with held_by_us(files, "headwater rewind --resume", "cannot finish the interrupted change"):
        return executor_for(files, _sink_of_pending(files), progress=progress).resume()


def abort(files: FileTree) -> Change:
    """Take back a change that was cut short; ``already-done`` when only ``undo`` can still do that."""
    with held_by_us(files, "headwater rewind --abort", "cannot take back the interrupted change"):
        return executor_for(files, _sink_of_pending(files)).abort()


def end_interrupted(files: FileTree, *, progress: Progress = no_progress) -> Change:
    """Finish a change that was cut short, or forget it when nothing was done and a query has gone on since."""
    try:
        return resume(files, progress=progress).change
    except ChangeRefused as refusal:
        if refusal.code != "plan-stale":
            raise
        return abort(files)


def executor_for(files: FileTree, sink: FileTree | None, *, progress: Progress = no_progress) -> Executor:
    """``sink`` may be named by the checkpoint alone: only a folder with a log of Spark's, or with what we set aside, is one."""
    roots: dict[Root, FileTree] = {"checkpoint": files}
    if sink is not None:
        if not (sink.entries(SINK_LOG) or sink.entries(OURS)):
            raise ChangeRefused(
                "not-a-sink",
                "the checkpoint names a folder as its sink that is none",
                evidence={"folder": sink.location, "lacks": SINK_LOG},
                remedy="do not trust this checkpoint, unless you moved its sink: then move it back",
            )
        roots["sink"] = sink
    return Executor(roots, progress)


def _sink_of_pending(files: FileTree) -> FileTree | None:
    pending = read_pending(files)
    return open_files(pending.change.sink) if pending and pending.change.sink else None
