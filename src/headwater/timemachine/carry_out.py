"""From a plan to its execution: alone on the checkpoint, and only if it is still the one that the plan was made for."""

from __future__ import annotations

from headwater.checkpoint.files import Files
from headwater.checkpoint.lease import held_by_us
from headwater.core.errors import ChangeRefused
from headwater.timemachine.change import Change, Root
from headwater.timemachine.executor import Executor, FenceSetter, Progress, no_fence, no_progress, refuse_if_pending
from headwater.timemachine.fingerprint import fingerprint
from headwater.timemachine.journal import Entry


def carry_out(
    change: Change,
    files: Files,
    sink: Files | None = None,
    *,
    set_fence: FenceSetter = no_fence,
    progress: Progress = no_progress,
) -> Entry:
    """Do a change under the lease. Nothing has moved when this raises ``CheckpointBusy`` or ``ChangeRefused``."""
    with held_by_us(files, f"headwater {change.verb}", f"cannot {change.verb}"):
        refuse_if_pending(files)
        if change.fingerprint and change.fingerprint != fingerprint(files, sink):
            raise ChangeRefused(
                "plan-stale",
                "the checkpoint has changed since this plan was made",
                evidence={"checkpoint": files.location},
                remedy="stop the query and make the plan again",
            )
        return executor_for(files, sink, set_fence=set_fence, progress=progress).apply(change)


def executor_for(
    files: Files, sink: Files | None, *, set_fence: FenceSetter = no_fence, progress: Progress = no_progress
) -> Executor:
    roots: dict[Root, Files] = {"checkpoint": files}
    if sink is not None:
        roots["sink"] = sink
    return Executor(roots, set_fence, progress)
