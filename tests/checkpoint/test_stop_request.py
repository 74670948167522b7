"""Requests to stop: who may be asked, who obeys, and what happens to requests that nobody answers."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint import stop_request
from headwater.checkpoint.lease import RECORD, Lease, hold_lease, refuse_if_held
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.stop_request import (
    ANSWER,
    REQUEST,
    StopRequest,
    StopRequests,
    request_stop,
    wait_until_stopped,
)
from headwater.core.errors import CheckpointBusy


@pytest.fixture
def held() -> tuple[MemoryTree, Lease]:
    """A checkpoint on an object store, and the lease of the job that runs on it."""
    files, lease = as_memory_files("stateless"), Lease.of_this_process("visits")
    files.write(RECORD, lease.to_bytes())
    return files, lease


def test_the_holder_answers_and_the_requester_sees_it_stop(held) -> None:
    """The request reaches the holder, its answer the requester, and both files are gone when the lease is free."""
    files, lease = held
    requests = StopRequests(files, lease)
    assert requests.poll() is None
    request, asked = request_stop(files)
    assert asked.identity == lease.identity

    def run() -> None:
        requests._next_check = 0
        found = requests.poll()
        assert found == request
        assert not found.now
        threading.Timer(0.3, files.remove, [RECORD]).start()

    threading.Timer(0.1, run).start()
    assert wait_until_stopped(files, request, lease)
    assert not files.exists(REQUEST)
    assert not files.exists(ANSWER)


def test_a_request_never_stops_a_later_run(held) -> None:
    """A request that was made to an earlier lease is ignored, and removed at the next start."""
    files, lease = held
    request_stop(files)
    later = replace(lease, since_ms=lease.since_ms + 1)
    running = StopRequests(files, later)
    assert not files.exists(REQUEST)
    files.write(REQUEST, StopRequest.to_holder_of(lease, now=True).to_bytes())
    assert running.poll() is None
    assert not files.exists(ANSWER)


def test_a_corrupt_request_is_ignored(held) -> None:
    """Neither broken JSON nor JSON of another shape stops a run."""
    files, lease = held
    for data in (b"{", b"[]", b'{"lease": 3}', b'{"request_id": "x"}'):
        requests = StopRequests(files, lease)
        files.write(REQUEST, data)
        assert requests.poll() is None


def test_now_can_follow_a_request_without_it(held) -> None:
    """A second request replaces the first one and is answered too."""
    files, lease = held
    requests = StopRequests(files, lease)
    request_stop(files)
    assert not requests.poll().now
    second, _ = request_stop(files, now=True)
    requests._next_check = 0
    assert requests.poll() == second
    assert json.loads(files.read(ANSWER))["request_id"] == second.request_id


def test_a_holder_that_does_not_answer(held, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the process, and the request is withdrawn: it must not stop the job later."""
    files, lease = held
    monkeypatch.setattr(stop_request, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(stop_request, "REMOTE_POLL_SECONDS", 0.05)
    request, _ = request_stop(files)
    with pytest.raises(CheckpointBusy, match="visits does not answer") as refused:
        wait_until_stopped(files, request, lease)
    assert str(lease.pid) in refused.value.evidence["process"]
    assert not files.exists(REQUEST)


def test_waiting_can_be_limited(held) -> None:
    """After the time is up the request remains: the job still stops."""
    files, lease = held
    request, _ = request_stop(files)
    assert not wait_until_stopped(files, request, lease, timeout=0)
    assert files.exists(REQUEST)


def test_nothing_is_running() -> None:
    """Without a lease there is nothing to stop; a change is not a job; fresh files are named."""
    files = as_memory_files("stateless")
    assert request_stop(files) is None
    with hold_lease(files, "headwater rewind", "cannot rewind"), pytest.raises(CheckpointBusy) as refused:
        request_stop(files)
    assert refused.value.code == "not-a-job"
    files.write("offsets/.99.tmp", b"")
    with pytest.raises(CheckpointBusy) as refused:
        request_stop(files)
    assert refused.value.code == "not-attached"
    assert not files.exists(REQUEST)


def test_busy_checkpoints_name_the_command(held) -> None:
    """What is refused because a job of another process runs says how to stop it."""
    files, lease = held
    files.write(RECORD, replace(lease, host="elsewhere").to_bytes())
    with pytest.raises(CheckpointBusy) as refused:
        refuse_if_held(files, "cannot rewind")
    assert refused.value.remedy.startswith(f"headwater stop {files.location} ")
