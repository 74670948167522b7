"""The lease of a running job where there are no locks: a record with a heartbeat, as on an object store."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headwater.checkpoint.files import LocalFiles, MemoryFiles
from headwater.checkpoint.lease import LOCK, RECORD, STALE_AFTER_MS, Lease, held_by_us
from headwater.core.errors import CheckpointBusy
from headwater.spark import lease
from headwater.spark.lease import check_free, running_on


def record(files: MemoryFiles, *, pid: int = 1, host: str = "elsewhere", age_ms: int = 0) -> None:
    now = int(time.time() * 1000) - age_ms
    files.write(RECORD, Lease("another job", pid, host, now, now).to_bytes())


def test_held_and_let_go() -> None:
    """While a job runs its record is there and others are refused; when it ends the record goes."""
    files = MemoryFiles()
    with running_on(None, files, "first"):  # type: ignore[arg-type]
        assert json.loads(files.read(RECORD))["holder"] == "first"
        with pytest.raises(CheckpointBusy, match="first is running"):
            check_free(files, "second")
    assert not files.exists(RECORD)
    check_free(files, "second")


def test_others_are_believed_as_long_as_their_heart_beats() -> None:
    """A fresh record from another machine is respected, an old one is not."""
    files = MemoryFiles()
    record(files)
    with pytest.raises(CheckpointBusy, match="another job is running"):
        check_free(files, "mine")
    record(files, age_ms=STALE_AFTER_MS + 1000)
    check_free(files, "mine")


def test_a_dead_process_of_this_machine_is_not_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """After kill -9 the next run goes on without waiting for the record to grow old."""
    monkeypatch.setattr(lease, "RECORD_GRACE_SECONDS", 0.0)
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    files = MemoryFiles()
    record(files, pid=gone.pid, host=Lease.of_this_process("me").host)
    check_free(files, "mine")


def test_a_lock_that_dies_with_its_holder(tmp_path: Path) -> None:
    """A change waits for the lock of a job that was just killed: its threads take a moment to end."""
    code = "import fcntl, sys; held = open(sys.argv[1], 'a+b'); fcntl.lockf(held, fcntl.LOCK_EX); print(flush=True); input()"
    files = LocalFiles(tmp_path)
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
