"""Refuse a change that plans the next batch again if Spark needs the offsets of that batch to start.

Spark starts with the last two offsets files. Those before the last batch may have been removed with old batches; then only
the plan of the next batch is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.state_folder import missing_logs
from headwater.core.errors import ChangeRefused
from headwater.core.ids import BatchId
from headwater.timemachine.change import Preview, Step


def needs_next_offsets(history: History, last: int) -> bool:
    """Return whether Spark could start after a batch only with the recorded offsets of the next one."""
    offsets, commits = set(history.logs.offsets.entries), history.logs.commits.entries
    stateful = bool(history.logs.state.stores)
    without = {number for number in offsets if number <= last}
    return last + 1 in offsets and missing_logs(BatchId(last), without, commits, stateful=stateful) is not None


def refuse_unstartable(files: FileTree, steps: Sequence[Step], last: int | None, remedy: str | None) -> None:
    """Raise ``ChangeRefused`` if Spark would not start after steps that leave a batch as the last one.

    ``remedy`` is a command that keeps the offsets of the next batch; without one, the nearest later batch is named.
    """
    after = History(Preview(files, steps))
    batch = None if last is None or last not in after.batch_ids else after.batch(BatchId(last))
    if batch is None or batch.obstacle != "logs":
        return
    if remedy is None:
        history = History(files)
        later = (number for number in history.batch_ids if number > batch.batch_id)
        nearest = next((number for number in later if history.batch(number).can_rewind_to), None)
        remedy = None if nearest is None else f"headwater rewind {files.location} --to {nearest}"
    raise ChangeRefused(
        "cannot-replan",
        f"cannot rewind to batch {last} and plan the next batch again: Spark would not start",
        evidence={"checkpoint": files.location, "why": f"without offsets/{batch.batch_id + 1}, {batch.why_not}"},
        remedy=remedy,
    )
