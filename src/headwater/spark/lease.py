"""The lease of a running job, held by the JVM: that is the process which writes the checkpoint."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.checkpoint.files import Files, LocalFiles
from headwater.checkpoint.lease import HEARTBEAT_MS, LOCK, RECORD, Lease, live_lease, refuse_if_held

GRACE_SECONDS = 10.0


@contextmanager
def running_on(spark: SparkSession, files: Files, job: str) -> Iterator[None]:
    """Hold the lease while the block runs."""
    check_free(files, job)
    lease = Lease.of_this_process(job)
    if not isinstance(files, LocalFiles):
        with _heartbeat(files, lease):
            yield
        return
    assert spark._jvm is not None
    path = files.path_of(LOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = spark._jvm.java.io.RandomAccessFile(str(path), "rw")
    try:
        if handle.getChannel().tryLock() is None:
            refuse_if_held(files, _wish(job))
        files.write(RECORD, lease.to_bytes())
        yield
    finally:
        with suppress(Py4JError, ConnectionError):  # a JVM that died has let go of the lock
            handle.close()


def check_free(files: Files, job: str) -> None:
    """Refuse when somebody works on the checkpoint. A predecessor that was just killed gets a moment to go away."""
    _wait_for_predecessor(files)
    refuse_if_held(files, _wish(job))


def _wish(job: str) -> str:
    return f"cannot run {job}"


def _wait_for_predecessor(files: Files) -> None:
    """A killed driver's JVM notices within a second or so; a living job does not go away by itself."""
    lease = live_lease(files)
    deadline = time.monotonic() + GRACE_SECONDS
    while lease and not _is_alive(lease) and time.monotonic() < deadline:
        time.sleep(0.1)
        lease = live_lease(files)


def _is_alive(lease: Lease) -> bool:
    if lease.host != socket.gethostname():
        return True
    try:
        os.kill(lease.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _heartbeat(files: Files, lease: Lease) -> Iterator[None]:
    ended = threading.Event()
    files.write(RECORD, lease.to_bytes())

    def beat() -> None:
        while not ended.wait(HEARTBEAT_MS / 1000):
            files.write(RECORD, replace(lease, heartbeat_ms=int(time.time() * 1000)).to_bytes())

    thread = threading.Thread(target=beat, name="headwater-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        files.remove(RECORD)
