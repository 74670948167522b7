"""Signs of a running query: a lease, or fresh files that no job and no change of Headwater's has left."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from corpus_support import load
from headwater.checkpoint.history import History
from headwater.checkpoint.lease import CLOCK_SLACK_MS, ended_ms, hold_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.progress_files import ProgressWriter
from headwater.checkpoint.record import ProgressRecord
from headwater.checkpoint.signs_of_life import signs_of_life
from headwater.checkpoint.stop_request import request_stop
from headwater.core.errors import CheckpointBusy
from headwater.timemachine.rewind import plan_rewind
from headwater.views.plans import rewind_text
from waiting_support import wait_until


def test_recent_files_are_a_sign(tmp_path: Path) -> None:
    """Files that changed a moment ago may belong to another program's query."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    written = max(moment or 0 for moment in History(files).committed_at_ms.values())
    assert signs_of_life(History(files), written + 5_000) == ["files changed 5 s ago"]
    assert signs_of_life(History(files), written + 61_000) == []
    assert signs_of_life(History(files), written - CLOCK_SLACK_MS) == ["files changed 0 s ago"]


def test_commit_of_a_headwater_job_is_no_sign(tmp_path: Path) -> None:
    """A Headwater job that holds no lease has ended; a later batch of another program's query is a sign."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    history = History(files)
    last, written = history.last_committed, max(moment or 0 for moment in history.committed_at_ms.values())
    assert last is not None
    ProgressWriter(files).add(ProgressRecord(last, written - 300, duration_ms=310))
    assert signs_of_life(History(files), written + 5_000) == []
    ProgressWriter(files).add(ProgressRecord(last, written - 60_000, duration_ms=310))
    assert signs_of_life(History(files), written + 5_000) == ["files changed 5 s ago"]


def test_lease_names_the_process(tmp_path: Path) -> None:
    """While a job runs, plans name its process instead of guessing from files."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    plan = plan_rewind(files, to=4)
    assert not any("is running" in warning for warning in rewind_text(plan).warnings)
    with hold_lease(files, "totals", "cannot run"):
        plan = plan_rewind(files, to=4)
    running = f"totals is running on this checkpoint, process {os.getpid()} on {socket.gethostname()}"
    assert plan.signs_of_life == (running,)
    assert running in rewind_text(plan).warnings
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        assert not any("rewind" in sign for sign in signs_of_life(History(files)))


@pytest.mark.parametrize("left", ["offsets/99", "commits/99", "offsets/.99.5b1a6a2e-0000-0000-0000-000000000000.tmp"])
def test_what_was_written_under_a_lease_is_no_sign(tmp_path: Path, left: str) -> None:
    """An interrupted batch and a batch that a change has added have no progress record; later files are a sign."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    with hold_lease(files, "headwater migrate", "cannot migrate"):
        files.write(left, b"v1\n")
    assert request_stop(files) is None
    # The clock of files is coarse.
    wait_until(lambda: time.time() * 1000 > ended_ms(files) + 20, "a later time")
    files.write(left, b"v1\n")
    with pytest.raises(CheckpointBusy) as refused:
        request_stop(files)
    assert refused.value.code == "not-attached"


def test_file_that_is_being_written_is_a_sign(tmp_path: Path) -> None:
    """Spark writes a log entry under a temporary name first."""
    files = LocalTree(load("aggregation-changelog", tmp_path).path)
    (files.local_path("offsets") / ".10.5b1a6a2e-0000-0000-0000-000000000000.tmp").write_bytes(b"v1\n")
    assert any("is being written" in sign for sign in signs_of_life(History(files), 0))
