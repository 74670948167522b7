"""Finish a change that was interrupted, or roll it back."""

from __future__ import annotations

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.locate import open_files
from headwater.core.errors import ChangeRefused
from headwater.lakehouse.tables import open_table
from headwater.timemachine.change import Change
from headwater.timemachine.executor import Executor, OpenTable, Progress, executor_for, no_progress
from headwater.timemachine.journal import Entry, cascade_of, read_pending


def resume(files: FileTree, *, open_table: OpenTable = open_table, progress: Progress = no_progress) -> Entry:
    """Finish the interrupted change."""
    with hold_lease(files, "headwater rewind --resume", "cannot finish the interrupted change"):
        return _executor_of_pending(files, open_table, progress).resume()


def abort(files: FileTree, *, open_table: OpenTable = open_table) -> Change:
    """Roll back the interrupted change. Raise ``already-done`` if all steps were done and only ``undo`` can help."""
    with hold_lease(files, "headwater rewind --abort", "cannot roll back the interrupted change"):
        return _executor_of_pending(files, open_table).abort()


def finish_interrupted(
    files: FileTree, *, open_table: OpenTable = open_table, progress: Progress = no_progress
) -> Change:
    """Finish the interrupted change, or discard it if no step was done and the query has continued since."""
    try:
        return resume(files, open_table=open_table, progress=progress).change
    except ChangeRefused as refusal:
        if refusal.code != "plan-stale":
            raise
        return abort(files, open_table=open_table)


def _executor_of_pending(files: FileTree, open_table: OpenTable, progress: Progress = no_progress) -> Executor:
    pending = read_pending(files)
    change = pending.change if pending else None
    first = cascade_of(files, change) if change else None
    if change is not None and first is not None:
        raise ChangeRefused(
            "part-of-a-cascade",
            f"the interrupted {change.verb} is a part of a change of several streams, which ends for all of them at once",
            evidence={"checkpoint": files.location, "started from": first},
            remedy=f"headwater rewind {first} --resume   (or --abort to roll it back)",
        )
    sink = open_files(change.sink) if change and change.sink else None
    table = open_table(change.table) if change and change.table else None
    return executor_for(files, sink, table, progress=progress)
