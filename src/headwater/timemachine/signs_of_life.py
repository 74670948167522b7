"""Signs that a query is running. Each is one-sided: an idle query that is alive shows none of them."""

from __future__ import annotations

import time

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMMITS, OFFSETS, is_temporary
from headwater.checkpoint.record import read_progress

FRESH_SECONDS = 60
CLOCK_SLACK_MS = 2_000


def signs_of_life(history: History, now_ms: int | None = None) -> list[str]:
    """Sentences for a person to judge; empty when there is no sign."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    signs = []
    newest = None if _ended_under_our_lease(history) else _newest_ms(history.files)
    if newest is not None and 0 <= now - newest < FRESH_SECONDS * 1000:
        signs.append(f"files changed {max(0, now - newest) // 1000} s ago")
    drafts = [
        f"{folder}/{entry.name}"
        for folder in (OFFSETS, COMMITS)
        for entry in history.files.entries(folder)
        if is_temporary(entry.name)
    ]
    if drafts:
        signs.append(f"{drafts[0]} is being written")
    return signs


def _ended_under_our_lease(history: History) -> bool:
    """A job of ours made the last commit. It holds a lease while it runs, and whoever asks here has seen none."""
    last = history.last_committed
    if last is None or last != max(history.batch_ids):
        return False
    told, written_ms = read_progress(history.files).get(last), history.committed_at_ms.get(last)
    if told is None or written_ms is None:
        return False
    return told.ran_at(written_ms, CLOCK_SLACK_MS)


def _newest_ms(files: FileTree) -> int | None:
    stamps = [entry.modified_ms for folder in (OFFSETS, COMMITS) for entry in files.entries(folder)]
    return max((stamp for stamp in stamps if stamp is not None), default=None)
