"""Undo a move: the old location is used again, and the new one gets a pointer back to it.

Nothing is copied: the old checkpoint is as it was. Batches that ran at the new location since are not in it, so undo is
refused if there are any, unless they may be dropped.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.moved import (
    MOVED_NOTICE,
    ORIGIN,
    POINTER,
    MovedTo,
    encoded_metadata,
    read_moving,
    read_pointer,
    replace_metadata,
    restore_metadata,
)
from headwater.core.errors import ChangeRefused
from headwater.timemachine.change import Change, new_change_id
from headwater.timemachine.executor import Progress, no_progress
from headwater.timemachine.journal import Entry, newest_number, read_entries, write_entry
from headwater.timemachine.move import absolute


@dataclass(frozen=True)
class MoveUndoPlan:
    """The undo of a move. ``dropped`` are batches that ran at the new location and are not in the old one."""

    files: FileTree = field(repr=False)
    moved: FileTree | None = field(repr=False)
    pointer: MovedTo
    dropped: tuple[int, ...]
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "undoes": self.pointer.move_id,
            "verb": "move",
            "from": self.pointer.to,
            "to": self.files.location,
            "dropped": list(self.dropped),
            "folders": dict(self.pointer.folders),
            "warnings": list(self.warnings),
        }

    def apply(self, progress: Progress = no_progress) -> Entry:
        """Use the old location again. No query may run at either location."""
        with ExitStack() as leases:
            leases.enter_context(hold_lease(self.files, "headwater undo", "cannot undo"))
            if self.moved is not None:
                leases.enter_context(hold_lease(self.moved, "headwater undo", "cannot undo"))
            return self.carry_out(progress)

    def carry_out(self, progress: Progress = no_progress) -> Entry:
        """Do what ``apply`` does. The caller holds the leases."""
        change_id = new_change_id("undo")
        # First, so that at no time the query can be started at both locations.
        if self.moved is not None and read_pointer(self.moved) is None:
            self.moved.write(POINTER, self._pointer_back(change_id).to_bytes())
        if self.moved is not None:
            replace_metadata(self.moved, MOVED_NOTICE)
        entry = self._entry(change_id)
        restore_metadata(self.files, self.pointer)
        self.files.remove(POINTER)
        progress(1, 1)
        return entry

    def _entry(self, change_id: str) -> Entry:
        undone = [entry for entry in read_entries(self.files) if entry.change.undoes == self.pointer.move_id]
        about = f"undo the move to {self.pointer.to}"
        change = Change(change_id, "undo", about, (), undoes=self.pointer.move_id)
        return undone[0] if undone else write_entry(self.files, change, time.time_ns() // 1_000_000)

    def _pointer_back(self, change_id: str) -> MovedTo:
        assert self.moved is not None
        history = History(self.moved)
        return MovedTo(
            self.files.location,
            change_id,
            time.time_ns() // 1_000_000,
            max(history.batch_ids, default=None),
            newest_number(self.moved),
            *encoded_metadata(self.moved),
            {new: old for old, new in self.pointer.folders.items()},
        )


def plan_move_undo(files: FileTree, pointer: MovedTo, *, drop_newer: bool = False) -> MoveUndoPlan:
    """Plan to undo the move that a pointer records. Raise ``ChangeRefused`` if the new location has changed since."""
    files = absolute(files)
    if not any(entry.change.change_id == pointer.move_id for entry in read_entries(files)):
        raise ChangeRefused(
            "checkpoint-moved",
            f"this checkpoint was moved back to {pointer.to}",
            evidence={"checkpoint": files.location},
            remedy=f"use {pointer.to}, or remove this copy",
        )
    moved = open_files(pointer.to)
    origin = read_moving(moved, ORIGIN) or read_moving(moved)
    if origin is None or origin.move_id != pointer.move_id:
        gone = f"{pointer.to} is not there any more: batches that may have run there are lost"
        return MoveUndoPlan(files, None, pointer, (), (gone,))
    onward = read_pointer(moved)
    if onward is not None and onward.to != files.location:
        raise ChangeRefused(
            "checkpoint-moved",
            f"the checkpoint has been moved again since, from {pointer.to} to {onward.to}",
            remedy=f"headwater undo {pointer.to}, then repeat this command",
        )
    limit = -1 if pointer.newest_batch is None else pointer.newest_batch
    newer = tuple(number for number in History(moved).batch_ids if number > limit)
    changes = newest_number(moved) > pointer.generation
    if (newer or changes) and not drop_newer:
        what = "batches have run" if newer else "changes have been made"
        raise ChangeRefused(
            "newer-batches",
            f"cannot undo the move: {what} at the new location since and would be dropped",
            evidence={"new location": pointer.to, "batches since": ", ".join(map(str, newer[:10])) or "none"},
            remedy=f"headwater undo {files.location} --drop-newer, or move it back with its batches: "
            f"headwater move {pointer.to} DEST",
        )
    return MoveUndoPlan(files, moved, pointer, newer)
