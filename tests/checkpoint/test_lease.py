"""Who is using a checkpoint: leases of this and other hosts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headwater.checkpoint.file_lock import file_lock, is_locked
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.lease import (
    LOCK,
    RECORD,
    Lease,
    hold_lease,
    live_lease,
    refuse_busy,
    refuse_if_held,
)
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointBusy

STOP = "headwater stop memory:   (it finishes the current batch), then try again"


def record(files: FileTree, **fields: object) -> None:
    """Write a fresh record of a running job with other fields."""
    now = int(time.time() * 1000)
    held = {"holder": "visits", "pid": 4711, "host": socket.gethostname(), "since_ms": now, "heartbeat_ms": now}
    held = {name: value for name, value in {**held, **fields}.items() if value is not None}
    files.write(RECORD, json.dumps(held).encode())


def refusal(files: FileTree) -> CheckpointBusy:
    with pytest.raises(CheckpointBusy) as refused:
        refuse_if_held(files, "cannot rewind")
    return refused.value


def test_a_job_can_be_asked_to_stop() -> None:
    """The remedy for a job is a command to paste; if the job does not answer, it is to kill the process."""
    files = MemoryTree()
    record(files, pid=os.getppid())
    error = refusal(files)
    assert error.problem == "cannot rewind: visits is running on this checkpoint"
    assert error.evidence["process"] == f"{os.getppid()} on {socket.gethostname()}"
    assert error.remedy == STOP
    assert live_lease(files).remedy == f"kill {os.getppid()}   (it finishes the current batch), then try again"


def test_holder_in_this_process() -> None:
    """The remedy for a job of this process is not to kill the process."""
    files = MemoryTree()
    record(files, pid=os.getpid())
    assert refusal(files).remedy == "call stop() on the running job, then try again"


@pytest.mark.parametrize(
    ("pid", "remedy"),
    [
        (os.getpid(), "call stop() on the query, then try again"),
        (
            os.getppid(),
            f"stop the query in its program, or: kill {os.getppid()}   (the current batch runs again at the next start)",
        ),
    ],
    ids=["this process", "another process"],
)
def test_holder_is_an_attached_program(pid: int, remedy: str) -> None:
    """The remedy if a program with headwater.attach does not answer does not promise that it finishes its batch."""
    files, now = MemoryTree(), int(time.time() * 1000)
    files.write(RECORD, Lease("visits", pid, socket.gethostname(), now, now, attached=True).to_bytes())
    assert live_lease(files).remedy == remedy
    assert refusal(files).remedy == (remedy if pid == os.getpid() else STOP)


def test_holder_on_another_host_is_not_killed_here() -> None:
    """A job on another host can be asked to stop too; if it does not answer, the remedy names the host."""
    files = MemoryTree()
    record(files, host="worker-7")
    error = refusal(files)
    assert error.evidence["process"] == "4711 on worker-7"
    assert error.remedy == STOP
    assert live_lease(files).remedy == "stop process 4711 on worker-7, then try again"


def test_holder_on_another_host_of_a_shared_disk(tmp_path: Path) -> None:
    """A lock on a shared disk may belong to another host, too."""
    files = LocalTree(tmp_path)
    record(files, host="worker-7")
    with file_lock(tmp_path / LOCK):
        assert refusal(files).remedy.startswith(f"headwater stop {tmp_path}")


def test_change_is_waited_for() -> None:
    """A change must not be killed: it is finished in a moment, and an interrupted one has to be repaired."""
    files = MemoryTree()
    record(files, holder="headwater rewind", pid=os.getpid())
    assert refusal(files).remedy == "wait until it has finished, then try again"


def test_record_of_an_earlier_release_without_a_host() -> None:
    """A record without a host is respected, and no local process is suggested for a kill."""
    files = MemoryTree()
    record(files, host=None)
    error = refusal(files)
    assert error.evidence["process"] == "4711 on an unknown host"
    assert "kill" not in (error.remedy or "")


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"null", b"\xff", b"[" * 100_000])
def test_corrupt_record_of_a_locked_checkpoint(data: bytes, tmp_path: Path) -> None:
    """A lock counts even if its record is corrupt; the holder is then unknown."""
    files = LocalTree(tmp_path)
    files.write(RECORD, data)
    assert live_lease(files) is None
    with file_lock(tmp_path / LOCK):
        error = refusal(files)
    assert error.problem == "cannot rewind: another process is running on this checkpoint"
    assert error.remedy == "stop the other process, then try again"


@pytest.mark.parametrize("pid", [0, -1, "1", True, 2.5])
def test_record_cannot_suggest_to_kill_several_processes(pid: object) -> None:
    """``kill 0`` and ``kill -1`` signal many processes, so a record with such an id has no process."""
    files = MemoryTree()
    record(files, pid=pid)
    assert refusal(files).evidence["process"] == "unknown"


def test_lost_race_is_reported() -> None:
    """If the lease was free again by the time of the refusal, the error says that another process was first."""
    with pytest.raises(CheckpointBusy, match="another process acquired the lease first"):
        refuse_busy(MemoryTree(), "cannot rewind")


def test_one_thread_at_a_time(tmp_path: Path) -> None:
    """A second change in the same process is refused while the first one runs, and looking does not release the lock."""
    files = LocalTree(tmp_path)
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        assert is_locked(tmp_path / LOCK)
        found: list[BaseException] = []
        thread = threading.Thread(target=lambda: found.append(refusal(files)))
        thread.start()
        thread.join()
        assert isinstance(found[0], CheckpointBusy)
        with pytest.raises(CheckpointBusy), hold_lease(files, "headwater undo", "cannot undo"):
            pass
        assert is_held_for_another_process(tmp_path)
    assert not is_held_for_another_process(tmp_path)


def is_held_for_another_process(checkpoint: Path) -> bool:
    code = "import sys; from pathlib import Path; from headwater.checkpoint.file_lock import is_locked as held; "
    code += "print(held(Path(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, checkpoint / LOCK], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_lease_and_its_record_are_equal() -> None:
    """A lease that is recorded and read back is the same."""
    lease = Lease.of_this_process("visits")
    assert Lease.from_bytes(lease.to_bytes()) == lease
