"""The lease of a running job: a record with a heartbeat on an object store, a lock on a local disk."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.checkpoint import lease
from headwater.checkpoint.lease import HEARTBEAT_MS, LOCK, RECORD, STALE_AFTER_MS, Lease, hold_lease, refuse_if_held
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointBusy
from headwater.spark.ownership import holding_lease


def record(
    files: MemoryTree, *, pid: int = 1, host: str = "elsewhere", age_ms: int = 0, now: float | None = None
) -> None:
    then = int((now or time.time()) * 1000) - age_ms
    files.write(RECORD, Lease("another job", pid, host, then, then).to_bytes())


def acquire_for_a_run(files: MemoryTree) -> None:
    with holding_lease(None, files, "mine"):  # type: ignore[arg-type]
        pass


def test_held_and_released() -> None:
    """While a job runs, its record exists and other runs are refused; when it ends, the record is removed."""
    files = MemoryTree()
    with holding_lease(None, files, "first"):  # type: ignore[arg-type]
        assert json.loads(files.read(RECORD))["holder"] == "first"
        with pytest.raises(CheckpointBusy, match="first is running"):
            acquire_for_a_run(files)
    assert not files.exists(RECORD)
    refuse_if_held(files, "cannot run second")


def test_a_heartbeat_expires() -> None:
    """A fresh record from another machine is respected, an old one is not."""
    files = MemoryTree()
    record(files)
    with pytest.raises(CheckpointBusy, match="another job is running"):
        acquire_for_a_run(files)
    record(files, age_ms=STALE_AFTER_MS + 1000)
    acquire_for_a_run(files)


class Clock:
    """A clock that advances only while a caller sleeps, and starts at a full second."""

    def __init__(self) -> None:
        self.slept = 0.0

    def time(self) -> float:
        return 1_000_000.0 + self.slept

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def acquire_for_a_change(files: MemoryTree) -> None:
    with hold_lease(files, "me", "cannot rewind"):
        pass


@pytest.mark.parametrize("acquire", [acquire_for_a_run, acquire_for_a_change])
@pytest.mark.parametrize(("age_ms", "waits"), [(0, 8), (HEARTBEAT_MS, 3), (HEARTBEAT_MS + 3_000, 0)])
def test_the_record_of_a_dead_process_does_not_block(
    monkeypatch: pytest.MonkeyPatch, acquire: Callable[[MemoryTree], None], age_ms: int, waits: int
) -> None:
    """After kill -9, a run or a change waits until a heartbeat would be overdue, and not until the record is stale."""
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    files, clock = MemoryTree(), Clock()
    record(files, pid=dead.pid, host=Lease.of_this_process("me").host, age_ms=age_ms, now=clock.time())
    monkeypatch.setattr(lease, "time", clock)
    acquire(files)
    assert abs(clock.slept - waits) < 0.1


def test_a_lock_is_released_with_its_process(tmp_path: Path) -> None:
    """A change waits for the lock of a job that was just killed: its JVM takes a moment to end."""
    code = "import fcntl, sys; held = open(sys.argv[1], 'a+b'); fcntl.lockf(held, fcntl.LOCK_EX); print(flush=True); input()"
    files = LocalTree(tmp_path)
    files.write(LOCK, b"")
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    files.write(RECORD, Lease("job", dead.pid, Lease.of_this_process("me").host, 0, 0).to_bytes())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / LOCK)], **pipes) as dying:  # type: ignore[call-overload]
        dying.stdout.readline()
        threading.Timer(0.3, dying.stdin.close).start()
        with hold_lease(files, "headwater rewind", "cannot rewind"):
            assert json.loads(files.read(RECORD))["holder"] == "headwater rewind"
