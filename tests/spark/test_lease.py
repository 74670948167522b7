"""The lease of a running job where there are no locks: a record with a heartbeat, as on an object store."""

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
from headwater.checkpoint.lease import HEARTBEAT_MS, LOCK, RECORD, STALE_AFTER_MS, Lease, held_by_us
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointBusy
from headwater.spark.ownership import check_free, running_on


def record(
    files: MemoryTree, *, pid: int = 1, host: str = "elsewhere", age_ms: int = 0, now: float | None = None
) -> None:
    then = int((now or time.time()) * 1000) - age_ms
    files.write(RECORD, Lease("another job", pid, host, then, then).to_bytes())


def test_held_and_let_go() -> None:
    """While a job runs its record is there and others are refused; when it ends the record goes."""
    files = MemoryTree()
    with running_on(None, files, "first"):  # type: ignore[arg-type]
        assert json.loads(files.read(RECORD))["holder"] == "first"
        with pytest.raises(CheckpointBusy, match="first is running"):
            check_free(files, "second")
    assert not files.exists(RECORD)
    check_free(files, "second")


def test_others_are_believed_as_long_as_their_heart_beats() -> None:
    """A fresh record from another machine is respected, an old one is not."""
    files = MemoryTree()
    record(files)
    with pytest.raises(CheckpointBusy, match="another job is running"):
        check_free(files, "mine")
    record(files, age_ms=STALE_AFTER_MS + 1000)
    check_free(files, "mine")


class Clock:
    """Time that passes only while somebody sleeps, and begins at a whole second."""

    def __init__(self) -> None:
        self.slept = 0.0

    def time(self) -> float:
        return 1_000_000.0 + self.slept

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def take_for_a_run(files: MemoryTree) -> None:
    check_free(files, "mine")


def take_for_a_change(files: MemoryTree) -> None:
    with held_by_us(files, "me", "cannot rewind"):
        pass


@pytest.mark.parametrize("take", [take_for_a_run, take_for_a_change])
@pytest.mark.parametrize(("age_ms", "waits"), [(0, True), (HEARTBEAT_MS, True), (HEARTBEAT_MS + 3_000, False)])
def test_a_dead_process_of_this_machine_is_not_in_the_way(
    monkeypatch: pytest.MonkeyPatch, take: Callable[[MemoryTree], None], age_ms: int, waits: bool
) -> None:
    """After kill -9 a run or a change waits until the JVM is gone too, and not until the record has grown old."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    files, clock = MemoryTree(), Clock()
    record(files, pid=gone.pid, host=Lease.of_this_process("me").host, age_ms=age_ms, now=clock.time())
    monkeypatch.setattr(lease, "time", clock)
    take(files)
    assert (2 if waits else 0) <= clock.slept <= (4 if waits else 0)


def test_a_lock_that_dies_with_its_holder(tmp_path: Path) -> None:
    """A change waits for the lock of a job that was just killed: its threads take a moment to end."""
    code = "import fcntl, sys; held = open(sys.argv[1], 'a+b'); fcntl.lockf(held, fcntl.LOCK_EX); print(flush=True); input()"
    files = LocalTree(tmp_path)
    files.write(LOCK, b"")
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    files.write(RECORD, Lease("job", gone.pid, Lease.of_this_process("me").host, 0, 0).to_bytes())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / LOCK)], **pipes) as dying:  # type: ignore[call-overload]
        dying.stdout.readline()
        threading.Timer(0.3, dying.stdin.close).start()
        with held_by_us(files, "headwater rewind", "cannot rewind"):
            assert json.loads(files.read(RECORD))["holder"] == "headwater rewind"
