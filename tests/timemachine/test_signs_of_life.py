"""What looks like a running query, and what does not."""

from __future__ import annotations

from pathlib import Path

from corpus_support import load
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord, ProgressWriter
from headwater.timemachine.signs_of_life import signs_of_life


def test_fresh_files_are_a_sign(tmp_path: Path) -> None:
    """Files that changed a moment ago may be those of a query that nobody knows."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    written = max(moment or 0 for moment in History(files).committed_at_ms.values())
    assert signs_of_life(History(files), written + 5_000) == ["files changed 5 s ago"]
    assert signs_of_life(History(files), written + 61_000) == []


def test_commit_of_a_job_of_ours_is_none(tmp_path: Path) -> None:
    """A job that holds a lease while it runs, and holds none now, has ended; a batch that ran elsewhere later is a sign."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    history = History(files)
    last, written = history.last_committed, max(moment or 0 for moment in history.committed_at_ms.values())
    assert last is not None
    ProgressWriter(files).add(ProgressRecord(last, written - 300, duration_ms=310))
    assert signs_of_life(History(files), written + 5_000) == []
    ProgressWriter(files).add(ProgressRecord(last, written - 60_000, duration_ms=310))
    assert signs_of_life(History(files), written + 5_000) == ["files changed 5 s ago"]


def test_a_file_that_is_being_written_is_a_sign(tmp_path: Path) -> None:
    """Spark writes a log entry under a name with a dot first."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    (files.path_of("offsets") / ".10.5b1a6a2e-0000-0000-0000-000000000000.tmp").write_bytes(b"v1\n")
    assert any("is being written" in sign for sign in signs_of_life(History(files), 0))
