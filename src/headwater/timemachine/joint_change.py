"""Changes of several checkpoints as one: made in order, finished or rolled back after an interruption, undone together.

``_headwater/cascade.json`` in the checkpoint that was named records all changes before the first of them is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import CASCADE_FILE
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.locate import open_files
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.tables import open_table
from headwater.timemachine.change import Change
from headwater.timemachine.executor import (
    Executor,
    OpenTable,
    Progress,
    executor_for,
    no_progress,
    noting_interruption,
)
from headwater.timemachine.journal import PendingCascade, last_to_undo, read_cascade, read_entries, read_pending
from headwater.timemachine.move import absolute
from headwater.timemachine.moved_sources import log_after, log_of
from headwater.timemachine.rewind import RewindPlan
from headwater.timemachine.undo import UndoPlan, plan_undo, with_moved_sources


@dataclass(frozen=True)
class Part:
    """The change of one checkpoint in a cascade."""

    files: FileTree
    change: Change
    executor: Executor

    @classmethod
    def of(cls, plan: RewindPlan | UndoPlan) -> Part:
        return cls(plan.files, plan.change, executor_for(plan.files, plan.sink_files, plan.writes_table))

    @property
    def is_pending(self) -> bool:
        pending = read_pending(self.files)
        return pending is not None and pending.change.change_id == self.change.change_id

    @property
    def is_applied(self) -> bool:
        return any(entry.change.change_id == self.change.change_id for entry in read_entries(self.files))

    @property
    def is_being_undone(self) -> bool:
        """Whether a roll-back was interrupted while it undid the change."""
        pending = read_pending(self.files)
        return pending is not None and pending.change.undoes == self.change.change_id

    @property
    def is_done(self) -> bool:
        """Whether the change is complete, and has not been undone since."""
        is_undone = any(entry.change.undoes == self.change.change_id for entry in read_entries(self.files))
        return self.is_applied and not self.is_pending and not is_undone and not self.is_being_undone


def carry_out(first: FileTree, parts: Sequence[Part], progress: Progress) -> None:
    """Make changes one after the other. If the first one is refused, nothing has changed."""
    first.write(CASCADE_FILE, PendingCascade(tuple((part.files.location, part.change) for part in parts)).to_bytes())
    with noting_interruption(parts[0].change.verb, first.location):
        for number, part in enumerate(parts, 1):
            try:
                part.executor.apply(part.change, in_cascade=True)
            except ChangeRefused:
                if number == 1:
                    first.remove(CASCADE_FILE)
                raise
            progress(number, len(parts))
        first.remove(CASCADE_FILE)


def hold_leases(trees: Sequence[FileTree]) -> ExitStack:
    """Return the leases of several checkpoints, to be closed by the caller; refuse as ``hold_lease`` does."""
    leases = ExitStack()
    try:
        for files in trees:
            leases.enter_context(hold_lease(files, "headwater rewind", f"cannot rewind {files.location}"))
    except BaseException:
        leases.close()
        raise
    return leases


def finish_cascade(
    files: FileTree, cascade: PendingCascade, *, open_table: OpenTable = open_table, abort: bool = False
) -> Change:
    """Finish an interrupted cascade, or roll it back; return the change of the checkpoint that was named."""
    files = absolute(files)
    parts = [_reopened(files, location, change, open_table) for location, change in cascade.members]
    with hold_leases([part.files for part in parts]):
        if read_cascade(files) != cascade:
            raise ChangeRefused(
                "plan-stale",
                "another process has finished the interrupted cascade, or rolled it back",
                evidence={"checkpoint": files.location},
                remedy=f"headwater log {files.location}",
            )
        if abort:
            _roll_back(parts)
        else:
            _finish(parts)
        files.remove(CASCADE_FILE)
    return next(part.change for part in parts if part.files is files)


def _reopened(files: FileTree, location: str, change: Change, open_table: OpenTable) -> Part:
    tree = files if location == files.location else open_files(location)
    sink = open_files(change.sink) if change.sink else None
    return Part(tree, change, executor_for(tree, sink, open_table(change.table) if change.table else None))


def _finish(parts: Sequence[Part]) -> None:
    if all(part.is_done for part in parts):
        return
    if any(part.is_applied and not part.is_pending and not part.is_done for part in parts):
        raise ChangeRefused(
            "plan-stale",
            "the interrupted cascade cannot be finished: it has been rolled back in part",
            remedy=f"headwater rewind {parts[-1].files.location} --abort",
        )
    for part in parts:
        if part.is_pending:
            part.executor.resume()
        elif part.is_done:
            _refuse_newer(part)
        else:
            part.executor.apply(part.change, in_cascade=True)


def _roll_back(parts: Sequence[Part]) -> None:
    if any(part.is_applied and part.change.undoes for part in parts):
        raise ChangeRefused(
            "already-done",
            "a part of the interrupted undo is complete and cannot be rolled back",
            remedy=f"headwater rewind {parts[0].files.location} --resume",
        )
    for part in parts:
        if part.is_done:
            _refuse_changed(part, parts[-1])
    for part in reversed(parts):
        if part.is_pending:
            part.executor.abort()
        elif part.is_being_undone:
            part.executor.resume()
        elif part.is_done:
            undo = with_moved_sources(plan_undo(part.files, drop_newer=True, in_cascade=True), log_of)
            Part.of(undo).executor.apply(undo.change, in_cascade=True)


def _refuse_changed(part: Part, first: Part) -> None:
    """Raise ``ChangeRefused`` if the last change of a checkpoint is not that of the cascade."""
    last = last_to_undo(part.files)
    if last is not None and last.change.change_id != part.change.change_id:
        raise ChangeRefused(
            "changed-since",
            "cannot roll back the cascade: one of its streams has been changed since",
            evidence={"checkpoint": part.files.location, "last change": last.change.about},
            remedy=f"headwater undo {part.files.location}, then headwater rewind {first.files.location} --abort",
        )


def _refuse_newer(part: Part) -> None:
    """Raise ``ChangeRefused`` if a reader has run since it was rewound: it may have read undone output again."""
    newest, last = max(History(part.files).batch_ids, default=-1), -1 if part.change.to is None else part.change.to
    if part.change.undoes is None and newest > last:
        raise ChangeRefused(
            "plan-stale",
            "a reader has run since the cascade was interrupted, and may have read undone output again",
            evidence={"checkpoint": part.files.location, "newest batch": newest},
            remedy="headwater rewind CKPT --abort, where CKPT is the stream that the cascade started from",
        )


@dataclass(frozen=True)
class CascadeUndoPlan:
    """The undo of a cascade: the stream that was named first, then its readers."""

    plans: tuple[UndoPlan, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        readers = [{"checkpoint": plan.files.location, "plan": plan.as_dict()} for plan in self.plans[1:]]
        return {**self.plans[0].as_dict(), "cascade": readers}

    def apply(self, progress: Progress = no_progress) -> None:
        """Undo all changes. All streams have to be stopped."""
        with hold_leases([plan.files for plan in self.plans]):
            self.carry_out(progress)

    def carry_out(self, progress: Progress = no_progress) -> None:
        """Do what ``apply`` does. The caller holds the leases."""
        carry_out(self.plans[0].files, [Part.of(plan) for plan in self.plans], progress)


def plan_cascade_undo(files: FileTree, plan_one: Callable[[FileTree], UndoPlan]) -> CascadeUndoPlan | None:
    """Plan to undo a cascade, if that is the last change of the checkpoint that was named; otherwise return None.

    ``plan_one`` plans the undo of one checkpoint. Raise ``ChangeRefused`` if a reader was changed since.
    """
    entry = last_to_undo(files)
    readers = (entry.change.details.get("readers") or ()) if entry else ()
    if not readers:
        return None
    plans = [plan_one(files)]
    for reader in readers:
        tree = open_files(str(reader["location"]))
        last = last_to_undo(tree)
        if last is None or last.change.change_id != reader["change_id"]:
            raise ChangeRefused(
                "changed-since",
                "cannot undo the cascade: a reader has been changed since",
                evidence={"checkpoint": tree.location, "last change": last.change.about if last else "none"},
                remedy=f"headwater undo {tree.location}, then repeat this command",
            )
        restored = log_after(plan.table for plan in plans)
        plans.append(with_moved_sources(plan_one(tree), restored))
    return CascadeUndoPlan(tuple(plans))
