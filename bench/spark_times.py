"""When a stream began and ended, read from its checkpoint, which needs nothing of the program that ran it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class StreamTimes:
    """``ready_at`` is the start of the first batch, once the source's offsets are known; ``done_at`` the last commit."""

    ready_at: float
    done_at: float
    batches: int
    batch_seconds: tuple[float, ...]


def stream_times(checkpoint: Path) -> StreamTimes:
    planned = {int(file.name): file for file in (checkpoint / "offsets").glob("[0-9]*")}
    commits = {int(file.name): file.stat().st_mtime for file in (checkpoint / "commits").glob("[0-9]*")}
    first, last = min(planned), max(commits)
    ready_at = json.loads(planned[first].read_text().splitlines()[1])["batchTimestampMs"] / 1000
    ends = [ready_at, *(commits[batch] for batch in sorted(commits))]
    return StreamTimes(ready_at, commits[last], len(commits), tuple(end - begin for begin, end in pairwise(ends)))
