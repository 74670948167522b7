"""Who is working on a checkpoint. Spark has no lock of its own: an idle query holds no file open.

On a local disk the lease is a POSIX lock that the operating system drops with the process, whatever ends it. The process
that writes the checkpoint holds it: the JVM for a running job, Python for a change of ours. On an object store the
lease is a record whose heartbeat must be younger than ``STALE_AFTER_MS``.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.local_tree import LocalTree, make_folder
from headwater.core.errors import CheckpointBusy
from headwater.core.times import iso_from_ms

LOCK = "_headwater/lease.lock"
RECORD = "_headwater/lease.json"
HEARTBEAT_MS = 5_000
STALE_AFTER_MS = 30_000
LOCK_GRACE_SECONDS = 10.0
RECORD_GRACE_SECONDS = 3.0


@dataclass(frozen=True)
class Lease:
    """What the holder says of itself."""

    holder: str
    pid: int
    host: str
    since_ms: int
    heartbeat_ms: int

    @classmethod
    def of_this_process(cls, holder: str) -> Lease:
        now = int(time.time() * 1000)
        return cls(holder, os.getpid(), socket.gethostname(), now, now)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def live_lease(files: FileTree) -> Lease | None:
    """The lease that is held now, by whomever; None when the checkpoint is free as far as we can know."""
    record = _read_record(files)
    if isinstance(files, LocalTree):
        return (record or Lease("another process", 0, "this machine", 0, 0)) if _is_locked(files) else None
    if record is None or time.time() * 1000 - record.heartbeat_ms > STALE_AFTER_MS:
        return None
    return record


def refuse_if_held(files: FileTree, wish: str) -> None:
    """Raise ``CheckpointBusy`` when somebody works on the checkpoint; ``wish`` is what was going to be done.

    A holder that was just killed gets a moment to go away.
    """
    lease = _lease_of_the_living(files)
    if lease is None:
        return
    raise CheckpointBusy(
        "checkpoint-busy",
        f"{wish}: {lease.holder} is running on this checkpoint",
        evidence={
            "checkpoint": files.location,
            "process": f"{lease.pid} on {lease.host}",
            "since": iso_from_ms(lease.since_ms),
        },
        remedy=f"kill {lease.pid}   (it ends the batch in hand), then try again",
    )


def _is_alive(lease: Lease) -> bool:
    """Whether the holder's process runs, as far as can be seen from here."""
    if lease.host != socket.gethostname():
        return True
    try:
        os.kill(lease.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _lease_of_the_living(files: FileTree) -> Lease | None:
    """The JVM of a holder that was just killed notices within a second or so, and then lets go of its lock.

    A record on an object store stays behind: there the holder's death, where it can be seen from here, has to do, and
    a while after which its JVM is gone too.
    """
    locked = isinstance(files, LocalTree)
    lease = live_lease(files)
    if lease is None or _is_alive(lease):
        return lease
    deadline = time.monotonic() + (LOCK_GRACE_SECONDS if locked else _grace_after_death(lease))
    while lease and not _is_alive(lease):
        if time.monotonic() >= deadline:
            return lease if locked else None
        time.sleep(0.05)
        lease = live_lease(files)
    return lease


def _grace_after_death(lease: Lease) -> float:
    """A holder died before the heartbeat that did not come: long after that nobody has to wait."""
    left = (lease.heartbeat_ms + HEARTBEAT_MS) / 1000 + RECORD_GRACE_SECONDS - time.time()
    return min(RECORD_GRACE_SECONDS, max(0.0, left))


@contextmanager
def held_by_us(files: FileTree, holder: str, wish: str) -> Iterator[None]:
    """Hold the lease in this process while a change is made."""
    refuse_if_held(files, wish)
    if not isinstance(files, LocalTree):
        with kept_alive(files, Lease.of_this_process(holder)):
            yield
        return
    path = files.path_of(LOCK)
    make_folder(path.parent)
    with _alone_in_this_process(files, wish), path.open("a+b") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            refuse_if_held(files, wish)
            raise
        files.write(RECORD, Lease.of_this_process(holder).to_bytes())
        yield


@contextmanager
def kept_alive(files: FileTree, lease: Lease) -> Iterator[None]:
    """A record with a heartbeat while the block runs: the lease where files cannot be locked."""
    ended = threading.Event()
    files.write(RECORD, lease.to_bytes())

    def beat() -> None:
        while not ended.wait(HEARTBEAT_MS / 1000):
            with suppress(Exception):  # the next beat may come through
                files.write(RECORD, replace(lease, heartbeat_ms=int(time.time() * 1000)).to_bytes())

    thread = threading.Thread(target=beat, name="headwater-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(Exception):  # a store that is gone keeps a record that soon counts as stale
            files.remove(RECORD)


# A POSIX lock belongs to a process: it does not part threads, and goes when the process closes the file anywhere.
_held_here: set[Path] = set()
_looking = threading.Lock()


@contextmanager
def _alone_in_this_process(files: LocalTree, wish: str) -> Iterator[None]:
    path = files.path_of(LOCK).resolve()
    with _looking:
        refuse_if_held(files, wish)
        _held_here.add(path)
    try:
        yield
    finally:
        _held_here.discard(path)


def _read_record(files: FileTree) -> Lease | None:
    try:
        return Lease(**json.loads(files.read(RECORD)))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


def _is_locked(files: LocalTree) -> bool:
    if files.path_of(LOCK).resolve() in _held_here:
        return True
    try:
        with files.path_of(LOCK).open("r+b") as handle:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            return False
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
