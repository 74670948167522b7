"""From a plan to its execution, and from an interrupted execution to its end: alone on the checkpoint, each of them."""

from __future__ import annotations

from headwater.checkpoint.files import Files
from headwater.checkpoint.layout import OURS, SINK_LOG
from headwater.checkpoint.lease import held_by_us
from headwater.checkpoint.places import open_files
from headwater.core.errors import ChangeRefused
from headwater.timemachine.change import Change, Root
from headwater.timemachine.executor import Executor, Progress, no_progress
from headwater.timemachine.journal import Entry, read_pending


def carry_out(change: Change, files: Files, sink: Files | None = None, *, progress: Progress = no_progress) -> Entry:
    """Do a change under the lease. Nothing has moved when this raises ``CheckpointBusy`` or ``ChangeRefused``."""
    with held_by_us(files, f"headwater {change.verb}", f"cannot {change.verb}"):
        return executor_for(files, sink, progress=progress).apply(change)


def resume(files: Files, *, progress: Progress = no_progress) -> Entry:
    """Finish a change that was cut short."""
    with held_by_us(files, "headwater rewind --resume", "cannot finish the interrupted change"):
        return executor_for(files, _sink_of_pending(files), progress=progress).resume()


def abort(files: Files) -> Change:
    """Take back a change that was cut short; ``already-done`` when only ``undo`` can still do that."""
    with held_by_us(files, "headwater rewind --abort", "cannot take back the interrupted change"):
        return executor_for(files, _sink_of_pending(files)).abort()


def end_interrupted(files: Files, *, progress: Progress = no_progress) -> Change:
    """Finish a change that was cut short, or forget it when nothing was done and a query has gone on since."""
    try:
        return resume(files, progress=progress).change
    except ChangeRefused as refusal:
        if refusal.code != "plan-stale":
            raise
        return abort(files)


def executor_for(files: Files, sink: Files | None, *, progress: Progress = no_progress) -> Executor:
    """``sink`` may be named by the checkpoint alone: only a folder with a log of Spark's, or with what we set aside, is one."""
    roots: dict[Root, Files] = {"checkpoint": files}
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


def _sink_of_pending(files: Files) -> Files | None:
    pending = read_pending(files)
    return open_files(pending.change.sink) if pending and pending.change.sink else None
