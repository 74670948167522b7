"""Signs that a query is running on a checkpoint: a lease, or files that nothing of Headwater's has just written.

Another program's query holds no lease. Headwater's own jobs and changes leave fresh files as well, so those are recognized by the
recorded end of the lease and by the progress record of the last batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMMITS, OFFSETS, is_temporary
from headwater.checkpoint.lease import CLOCK_SLACK_MS, ended_ms, live_lease
from headwater.checkpoint.record import read_progress

FRESH_SECONDS = 60
_IS_RUNNING = " is running on this checkpoint, process "


def is_fresh(age_ms: int) -> bool:
    """Return whether a file of this age may be one that a query has just written. Clocks differ a little."""
    return -CLOCK_SLACK_MS <= age_ms < FRESH_SECONDS * 1000


def signs_of_life(history: History, now_ms: int | None = None) -> list[str]:
    """Return signs that a query is running, as clauses for a user to judge. An idle query shows none of them."""
    lease = live_lease(history.files)
    if lease is not None and lease.may_be_alive and not lease.is_own_change:
        return [f"{lease.holder}{_IS_RUNNING}{lease.process}"]
    now = int(time.time() * 1000) if now_ms is None else now_ms
    signs = []
    ended = ended_ms(history.files)
    newest = None if _ended_with_headwater(history) else _newest_ms(history.files)
    if newest is not None and newest > ended and is_fresh(now - newest):
        signs.append(f"files changed {max(0, now - newest) // 1000} s ago")
    drafts = [
        f"{folder}/{entry.name}"
        for folder in (OFFSETS, COMMITS)
        for entry in history.files.entries(folder)
        if is_temporary(entry.name) and not 0 < (entry.modified_ms or 0) <= ended
    ]
    if drafts:
        signs.append(f"{drafts[0]} is being written")
    return signs


def running_warnings(signs: Iterable[str]) -> list[str]:
    """Return the warnings of a plan about such signs. Only a lease shows for certain that a process is running."""
    return [sign if _IS_RUNNING in sign else f"a query may still be running: {sign}" for sign in signs]


def _ended_with_headwater(history: History) -> bool:
    """Return whether a Headwater job made the last commit; it has ended then, because callers have seen no lease."""
    last = history.last_committed
    if last is None or last != max(history.batch_ids):
        return False
    progress, written_ms = read_progress(history.files).get(last), history.committed_at_ms.get(last)
    if progress is None or written_ms is None:
        return False
    return progress.ran_at(written_ms, CLOCK_SLACK_MS)


def _newest_ms(files: FileTree) -> int | None:
    stamps = [entry.modified_ms for folder in (OFFSETS, COMMITS) for entry in files.entries(folder)]
    return max((stamp for stamp in stamps if stamp is not None), default=None)
