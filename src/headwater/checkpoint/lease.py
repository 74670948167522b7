"""Who is using a checkpoint: the lease that Headwater's processes hold.

Spark has no lock of its own, and an idle query holds no file open. Headwater therefore holds a lease while a job runs
or a change is made. On a local disk the lease is a POSIX lock, held by the process that writes the checkpoint: the JVM
for a running job, Python for a change. On an object store, and on a file system without locks, it is a record whose
heartbeat must be younger than ``STALE_AFTER_MS``. A process that asks for such a lease compares times of the store, because
the clocks of two hosts may differ.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

from headwater.checkpoint.file_lock import file_lock, has_locks, is_locked
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.local_tree import make_folder
from headwater.core.errors import CheckpointBusy, HeadwaterError
from headwater.core.times import iso_from_ms

LOCK = "_headwater/lease.lock"
RECORD = "_headwater/lease.json"
ENDED = "_headwater/lease_ended.json"
"""When the last holder released the lease, so that the files that it has just written are no sign of another query."""
HEARTBEAT_MS = 5_000
STALE_AFTER_MS = 30_000
LOCK_GRACE_SECONDS = 10.0
RECORD_GRACE_SECONDS = 3.0
CLOCK_SLACK_MS = 2_000


@dataclass(frozen=True)
class Lease:
    """A lease as its holder recorded it. Attributes that the record lacks are None."""

    holder: str
    pid: int | None
    host: str | None
    since_ms: int | None
    heartbeat_ms: int
    attached: bool = False
    """Whether the holder is a program with ``headwater.attach``, which a signal stops without finishing its batch."""
    token: str = ""
    """What no other attempt to hold a lease has, by which the holder recognizes its record."""

    @classmethod
    def of_this_process(cls, holder: str) -> Lease:
        """Return a lease for this process; ``holder`` is the name of the job, or ``headwater VERB`` for a change."""
        now = _now_ms()
        return cls(holder, os.getpid(), socket.gethostname(), now, now, token=uuid.uuid4().hex)

    @classmethod
    def from_bytes(cls, data: bytes) -> Lease | None:
        """Return a recorded lease, also one of an earlier release; None if the record is corrupt."""
        try:
            record = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(record, dict):
            return None
        pid, since = _number(record.get("pid")), _number(record.get("since_ms"))
        host, heartbeat = record.get("host"), _number(record.get("heartbeat_ms"))
        holder = str(record.get("holder") or UNKNOWN_HOLDER)
        attached, token = record.get("attached") is True, str(record.get("token") or "")
        return cls(holder, pid, str(host) if host else None, since, heartbeat or 0, attached, token)

    def to_bytes(self) -> bytes:
        """Return the record of this lease."""
        return json.dumps(asdict(self)).encode()

    @property
    def identity(self) -> dict[str, object]:
        """What distinguishes this lease from every other one, as requests to its holder record it."""
        return {"pid": self.pid, "host": self.host, "since_ms": self.since_ms}

    @property
    def is_on_this_host(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def may_be_alive(self) -> bool:
        """Whether the holder's process may be running: False only if it ran on this host and has ended."""
        if not self.is_on_this_host or self.pid is None:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    @property
    def process(self) -> str:
        """The holder's process and host, as messages show them."""
        return "unknown" if self.pid is None else f"{self.pid} on {self.host or 'an unknown host'}"

    def remedy_at(self, location: str) -> str:
        """Return what a user can do to get the lease of a checkpoint, which a job may be asked to release."""
        if self.since_ms is None or self.holder.startswith("headwater ") or self.is_of_this_process:
            return self.remedy
        return f"headwater stop {location}   (it finishes the current batch), then try again"

    @property
    def is_of_this_process(self) -> bool:
        return self.is_on_this_host and self.pid == os.getpid()

    @property
    def is_own_change(self) -> bool:
        """Whether this process holds it for a change, not for a job."""
        return self.is_of_this_process and self.holder.startswith("headwater ")

    @property
    def remedy(self) -> str:
        """What a user can do to get the lease; a command to paste only if the holder runs on this host."""
        if self.holder.startswith("headwater "):
            return "wait until it has finished, then try again"
        if self.pid is None:
            return "stop the other process, then try again"
        if self.is_of_this_process:
            return f"call stop() on the {'query' if self.attached else 'running job'}, then try again"
        if not self.is_on_this_host:
            return f"stop process {self.process}, then try again"
        if self.attached:
            return (
                f"stop the query in its program, or: kill {self.pid}   (the current batch runs again at the next start)"
            )
        return f"kill {self.pid}   (it finishes the current batch), then try again"


UNKNOWN_HOLDER = "another process"


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def live_lease(files: FileTree) -> Lease | None:
    """Return the lease that any process holds now; None if the checkpoint is free as far as can be known."""
    return _live_lease(files, _age_by_clock)


def held_lease(files: FileTree) -> Lease | None:
    """Return the lease that any process holds now. It is free only if the clock of the store says so, too."""
    return live_lease(files) or _live_lease(files, _age_by_store)


def _live_lease(files: FileTree, age_ms: Callable[[FileTree, Lease], int]) -> Lease | None:
    record, lock = _read_record(files), lock_of(files)
    if lock is not None:
        return (record or Lease(UNKNOWN_HOLDER, None, None, None, 0)) if is_locked(lock) else None
    return None if record is None or age_ms(files, record) > STALE_AFTER_MS else record


def lock_of(files: FileTree) -> Path | None:
    """Return the lock file of a checkpoint; None on an object store and on a file system without locks."""
    lock = files.local_path(LOCK)
    return lock if lock is not None and has_locks(lock) else None


def lock_to_hold(files: FileTree) -> Path | None:
    """Return what ``lock_of`` returns, after the file was created with which the file system is asked for locks."""
    lock = files.local_path(LOCK)
    if lock is not None:
        make_folder(lock.parent)
        with suppress(OSError):
            lock.touch()
    return lock_of(files)


def _age_by_clock(files: FileTree, record: Lease) -> int:  # noqa: ARG001  the other way to tell needs the tree
    return _now_ms() - record.heartbeat_ms


def _age_by_store(files: FileTree, record: Lease) -> int:
    """Return the age of a record by the clock of the store, which a new file shows; by this host's if it cannot be seen."""
    clock = f"_headwater/lease.clock-{os.getpid()}-{os.urandom(3).hex()}"
    try:
        files.write(clock, b"")
        times = {entry.name: entry.modified_ms for entry in files.entries("_headwater")}
        files.remove(clock)
    except (HeadwaterError, OSError):
        times = {}
    now, written = (times.get(path.rpartition("/")[2]) for path in (clock, RECORD))
    return now - written if now and written else _age_by_clock(files, record)


def refuse_if_held(files: FileTree, problem: str) -> None:
    """Raise ``CheckpointBusy`` if any process holds the lease; ``problem`` is what cannot be done, as ``cannot rewind``.

    A holder that was just killed gets a moment to disappear.
    """
    lease = awaited_lease(files)
    if lease is None:
        return
    since = {} if lease.since_ms is None else {"since": iso_from_ms(lease.since_ms)}
    raise CheckpointBusy(
        "checkpoint-busy",
        f"{problem}: {lease.holder} is running on this checkpoint",
        evidence={"checkpoint": files.location, "process": lease.process, **since},
        remedy=lease.remedy_at(files.location),
    )


def refuse_busy(files: FileTree, problem: str) -> NoReturn:
    """Raise ``CheckpointBusy`` after a failed attempt to acquire the lease."""
    refuse_if_held(files, problem)
    raise CheckpointBusy("checkpoint-busy", f"{problem}: another process acquired the lease first", remedy="try again")


def awaited_lease(files: FileTree) -> Lease | None:
    """Return the live lease, but wait for one whose holder has just been killed.

    The JVM of a killed job notices within about a second, and then releases its lock. A record on an object store
    remains: it is ignored once the holder has ended, if that can be seen from here, and its JVM has had time to end. A
    holder in another container or on another machine with this host's name cannot be seen, but it sends heartbeats.
    """
    has_lock = lock_of(files) is not None
    lease = _live_lease(files, _age_by_store)
    if lease is None or lease.may_be_alive:
        return lease
    deadline = time.monotonic() + (LOCK_GRACE_SECONDS if has_lock else _grace_after_death(files, lease))
    seen_ms = lease.heartbeat_ms
    while lease and not lease.may_be_alive:
        if not has_lock and lease.heartbeat_ms > seen_ms:
            return lease
        if time.monotonic() >= deadline:
            return lease if has_lock else None
        time.sleep(0.05)
        lease = live_lease(files) if has_lock else _read_record(files)
    return lease


def _grace_after_death(files: FileTree, lease: Lease) -> float:
    """Return the seconds until the next heartbeat of a holder that seems to be dead would be overdue."""
    most = HEARTBEAT_MS / 1000 + RECORD_GRACE_SECONDS
    return min(most, max(0.0, most - _age_by_store(files, lease) / 1000))


@contextmanager
def hold_lease(files: FileTree, holder: str, problem: str) -> Iterator[None]:
    """Hold the lease in this process while the block makes a change; refuse as ``refuse_if_held`` does."""
    lease, lock = Lease.of_this_process(holder), lock_to_hold(files)
    if lock is None:
        with lease_with_heartbeat(files, lease, problem):
            yield
        return
    refuse_if_held(files, problem)
    with file_lock(lock) as acquired:
        if not acquired:
            refuse_busy(files, problem)
        files.write(RECORD, lease.to_bytes())
        with recorded_end(files):
            yield


@contextmanager
def lease_with_heartbeat(files: FileTree, lease: Lease, problem: str) -> Iterator[None]:
    """Acquire a record with a heartbeat and keep it while the block runs: the lease where files cannot be locked."""
    ended = threading.Event()
    written = _acquire_record(files, lease, problem)

    def beat() -> None:
        nonlocal written
        while not ended.wait(HEARTBEAT_MS / 1000):
            with suppress(Exception):  # the next heartbeat may succeed
                written = _write_own_record(files, replace(lease, heartbeat_ms=_now_ms()), written)

    thread = threading.Thread(target=beat, name="headwater-lease", daemon=True)
    thread.start()
    try:
        with recorded_end(files):
            yield
    finally:
        ended.set()
        thread.join()
        with suppress(Exception):  # if the store is unreachable, the record becomes stale
            if _is_record_of(lease, files.read(RECORD)):  # a process that was suspended may have lost its lease
                files.remove(RECORD)


def _acquire_record(files: FileTree, lease: Lease, problem: str) -> bytes:
    """Write the record of a lease, in place of one that is stale, unless another process does so at the same time."""
    stale = _bytes_of_record(files)
    if stale is not None:
        refuse_if_held(files, problem)
        # The holder may have released it meanwhile. A record of another process that acquired it must not be replaced.
        stale = stale if files.exists(RECORD) else None
    try:
        return _write_own_record(files, lease, stale)
    except FileExistsError:
        refuse_busy(files, problem)


def _write_own_record(files: FileTree, lease: Lease, before: bytes | None) -> bytes:
    """Write a record as ``_write_record`` does. One whose reply was lost is there already, so that the retry is refused."""
    try:
        return _write_record(files, lease, before)
    except FileExistsError:
        found = _bytes_of_record(files)
        if found is None or not _is_record_of(lease, found):
            raise
        return found


def _is_record_of(lease: Lease, data: bytes) -> bool:
    present = Lease.from_bytes(data)
    return present is not None and present.token == lease.token


def _bytes_of_record(files: FileTree) -> bytes | None:
    try:
        return files.read(RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_record(files: FileTree, lease: Lease, before: bytes | None) -> bytes:
    """Write a record if the one before is still there, where the store can tell."""
    data = lease.to_bytes()
    if not files.can_create:
        files.write(RECORD, data)
    elif before is None:
        files.create(RECORD, data)
    else:
        files.replace(RECORD, data, before)
    return data


@contextmanager
def recorded_end(files: FileTree) -> Iterator[None]:
    """Record when the block ends, within which this process holds the lease."""
    try:
        yield
    finally:
        record_end(files)


def record_end(files: FileTree) -> None:
    """Record that the lease was released, at the latest now."""
    with suppress(Exception):  # without the record, fresh files are a sign of life for a minute
        files.write(ENDED, json.dumps({"ended_ms": _now_ms()}).encode())


def ended_ms(files: FileTree) -> int:
    """Return until when files were written under a lease that has ended; 0 if that is not recorded."""
    try:
        value = json.loads(files.read(ENDED))
    except (OSError, ValueError, RecursionError):
        return 0
    found = _number(value.get("ended_ms")) if isinstance(value, dict) else None
    # The times of files on this machine are from the same clock.
    return 0 if found is None else found + (0 if files.is_local else CLOCK_SLACK_MS)


def _read_record(files: FileTree) -> Lease | None:
    data = _bytes_of_record(files)
    return None if data is None else Lease.from_bytes(data)


def _now_ms() -> int:
    return int(time.time() * 1000)
