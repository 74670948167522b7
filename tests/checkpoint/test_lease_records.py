"""A lease that is a record: under conditional writes, with clocks that differ, and on file systems without locks."""

from __future__ import annotations

import errno
import fcntl
import queue
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.checkpoint import lease
from headwater.checkpoint.filetree import Entry, FileTree
from headwater.checkpoint.lease import LOCK, RECORD, STALE_AFTER_MS, Lease, hold_lease, refuse_if_held
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.object_tree import ObjectTree
from headwater.checkpoint.stop_request import REQUEST, request_stop, wait_until_stopped
from headwater.core.errors import CheckpointBusy
from s3_support import S3

CHALLENGERS = 8


class StoreWithAClock(MemoryTree):
    """A store that stamps its objects by a clock of its own."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self.now_ms, self.written_ms = now_ms, dict[str, int]()

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data)
        self.written_ms[path] = self.now_ms

    def entries(self, folder: str) -> list[Entry]:
        listed = super().entries(folder)
        return [Entry(one.name, one.is_folder, one.size, self.written_ms.get(f"{folder}/{one.name}")) for one in listed]


def held_elsewhere(files: MemoryTree, clock_ms: int) -> None:
    """Let another host, whose clock shows a time, write a heartbeat."""
    files.write(RECORD, Lease("visits", 4711, "elsewhere", clock_ms, clock_ms).to_bytes())


def is_held(files: MemoryTree) -> bool:
    try:
        refuse_if_held(files, "cannot rewind")
    except CheckpointBusy:
        return True
    return False


@pytest.mark.parametrize("skew_ms", [-3_600_000, -STALE_AFTER_MS * 2, 0, STALE_AFTER_MS * 2, 3_600_000])
@pytest.mark.parametrize(("age_ms", "expected"), [(1_000, True), (STALE_AFTER_MS + 1_000, False)])
def test_clocks_of_two_hosts_may_differ(skew_ms: int, age_ms: int, expected: bool) -> None:
    """Only the clock of the store decides whether a heartbeat is recent, whatever those of the two hosts show."""
    now = int(time.time() * 1000)
    files = StoreWithAClock(now - 7 * 86_400_000)
    held_elsewhere(files, now + skew_ms - age_ms)
    files.now_ms += age_ms
    assert is_held(files) is expected
    assert set(files.contents) == {RECORD}


def test_a_store_that_shows_no_times() -> None:
    """Without times of the store, the heartbeat is compared with this host's clock."""
    files = MemoryTree()
    held_elsewhere(files, int(time.time() * 1000))
    assert is_held(files)
    held_elsewhere(files, int(time.time() * 1000) - STALE_AFTER_MS - 1_000)
    assert not is_held(files)


def winners(files: FileTree) -> list[int]:
    """Let several processes, here threads, ask for the lease at the same moment; return those that got it."""
    won, over, outcomes = list[int](), threading.Event(), queue.Queue[BaseException | None]()

    def ask(number: int) -> None:
        try:
            with hold_lease(files, f"headwater rewind {number}", "cannot rewind"):
                won.append(number)
                outcomes.put(None)
                over.wait(60)
        except BaseException as error:
            outcomes.put(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CHALLENGERS)]
    for thread in threads:
        thread.start()
    found = [outcomes.get(timeout=120) for _ in threads]
    over.set()
    for thread in threads:
        thread.join()
    assert [error for error in found if error is not None and not isinstance(error, CheckpointBusy)] == []
    return won


@pytest.mark.services
@pytest.mark.parametrize("stale", [False, True], ids=["free", "stale record"])
def test_one_of_many_challengers_on_s3(s3: S3, stale: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several challengers that all find the lease free, conditional writes let exactly one have it."""
    files = ObjectTree(s3.url(f"lease-{stale}"))
    if stale:
        files.write(RECORD, Lease("visits", 4711, "elsewhere", 1, 1).to_bytes())
    monkeypatch.setattr(lease, "refuse_if_held", lambda *_: None)  # every one of them has found it free
    together, one_at_a_time, write = threading.Barrier(CHALLENGERS), threading.Lock(), files._system.pipe_file
    first_writes = iter(range(CHALLENGERS))

    def write_together(*arguments: Any, **options: Any) -> None:
        """Write when all have looked, and one after another: unlike S3, the server does not check and write at once."""
        if next(first_writes, None) is not None:
            together.wait(60)
        with one_at_a_time:
            write(*arguments, **options)

    monkeypatch.setattr(files._system, "pipe_file", write_together)
    monkeypatch.setattr(lease, "HEARTBEAT_MS", 3_600_000)
    assert len(winners(files)) == 1
    monkeypatch.undo()
    assert not files.exists(RECORD)


@pytest.mark.services
def test_conditional_writes_on_s3(s3: S3) -> None:
    """An object is replaced only while it has the expected contents, and not created a second time."""
    files = open_files(s3.url("conditional"))
    files.create("a", b"1")
    with pytest.raises(FileExistsError):
        files.create("a", b"2")
    with pytest.raises(FileExistsError):
        files.replace("a", b"2", b"0")
    with pytest.raises(FileExistsError):
        files.replace("missing", b"2", b"0")
    files.replace("a", b"2", b"1")
    assert files.read("a") == b"2"


def test_a_suspended_process_leaves_the_lease_of_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was suspended until its lease was taken over neither overwrites nor removes the new record."""
    monkeypatch.setattr(lease, "HEARTBEAT_MS", 1)
    files, theirs = MemoryTree(), Lease("visits", 4711, "elsewhere", 1, 1).to_bytes()
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        files.contents[RECORD] = theirs
        time.sleep(0.05)  # several heartbeats, none of which may be written
        assert files.read(RECORD) == theirs
    assert files.read(RECORD) == theirs


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be locked, the lease is a record with a heartbeat, as on an object store."""

    def refuse(*_: Any) -> None:
        raise OSError(code, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    files = LocalTree(tmp_path)
    files.write(LOCK, b"")
    refuse_if_held(files, "cannot rewind")
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        assert Lease.from_bytes(files.read(RECORD)).holder == "headwater rewind"
        with pytest.raises(CheckpointBusy, match="headwater rewind is running"):
            refuse_if_held(files, "cannot undo")
    assert not files.exists(RECORD)


class ConditionalStore(StoreWithAClock):
    """A store with conditional writes, on which the reply to one of them can be lost."""

    can_create = True
    lost_replies = 0

    def create(self, path: str, data: bytes) -> None:
        if self.exists(path):
            raise FileExistsError(path)
        self._reply(path, data)

    def replace(self, path: str, data: bytes, expected: bytes) -> None:
        if not self.exists(path) or self.read(path) != expected:
            raise FileExistsError(path)
        self._reply(path, data)

    def _reply(self, path: str, data: bytes) -> None:
        self.write(path, data)
        if self.lost_replies:
            self.lost_replies -= 1
            raise FileExistsError(path)  # the client repeats the request, which the store then refuses

    @property
    def heartbeat_ms(self) -> int:
        found = Lease.from_bytes(self.read(RECORD))
        assert found is not None
        return found.heartbeat_ms


def test_heartbeats_go_on_after_a_lost_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder recognizes its own record, both when it acquires the lease and when it renews it."""
    monkeypatch.setattr(lease, "HEARTBEAT_MS", 20)
    files = ConditionalStore(int(time.time() * 1000))
    files.lost_replies = 2
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        first = files.heartbeat_ms
        deadline = time.monotonic() + 30
        while files.lost_replies or files.heartbeat_ms <= first + 100:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not files.exists(RECORD)


@pytest.mark.parametrize("skew_ms", [-3_600_000, 0, 3_600_000])
def test_a_holder_with_the_same_host_name_elsewhere(monkeypatch: pytest.MonkeyPatch, skew_ms: int) -> None:
    """Its process cannot be seen from here, in another container for example, but its heartbeats can, whatever its clock."""
    monkeypatch.setattr(lease, "HEARTBEAT_MS", 500)
    files = StoreWithAClock(int(time.time() * 1000))
    ended, unknown_pid = threading.Event(), 2**22 - 7

    def beat() -> None:
        files.now_ms = now = int(time.time() * 1000)
        holder = Lease("visits", unknown_pid, Lease.of_this_process("").host, 1, now + skew_ms)
        files.write(RECORD, holder.to_bytes())

    def keep_beating() -> None:
        while not ended.wait(0.1):
            beat()

    beat()
    thread = threading.Thread(target=keep_beating)
    thread.start()
    try:
        assert is_held(files)
    finally:
        ended.set()
        thread.join()


def test_stop_asks_the_clock_of_the_store() -> None:
    """A host whose clock is ahead does not take a running job for one that has stopped."""
    now = int(time.time() * 1000)
    files = StoreWithAClock(now)
    held_elsewhere(files, now - 60_000)  # this host is a minute ahead of the holder and of the store
    request, holder = request_stop(files) or pytest.fail("no job is running")
    assert not wait_until_stopped(files, request, holder, timeout=0)
    assert files.exists(REQUEST)
    files.remove(RECORD)
    assert wait_until_stopped(files, request, holder, timeout=0)


def test_a_record_whose_last_reply_was_lost_is_removed() -> None:
    """The holder recognizes its record at the end, although it does not know that the heartbeat was written."""
    files = ConditionalStore(int(time.time() * 1000))
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        held = Lease.from_bytes(files.read(RECORD))
        assert held is not None
        files.write(RECORD, replace(held, heartbeat_ms=held.heartbeat_ms + 1).to_bytes())
    assert not files.exists(RECORD)


def test_a_lease_that_another_process_acquires_while_this_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new record is not taken for the one that was found to be stale."""
    files = ConditionalStore(int(time.time() * 1000))
    held_elsewhere(files, 1)
    monkeypatch.setattr(lease, "refuse_if_held", lambda tree, _: held_elsewhere(tree, 2))
    with pytest.raises(CheckpointBusy), hold_lease(files, "headwater rewind", "cannot rewind"):
        pass
    held = Lease.from_bytes(files.read(RECORD))
    assert held is not None and held.holder == "visits"


def test_a_lease_that_is_released_while_another_process_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting process gets it."""
    files = ConditionalStore(int(time.time() * 1000))
    held_elsewhere(files, 1)
    monkeypatch.setattr(lease, "refuse_if_held", lambda tree, _: tree.remove(RECORD))
    with hold_lease(files, "headwater rewind", "cannot rewind"):
        assert Lease.from_bytes(files.read(RECORD)).holder == "headwater rewind"  # type: ignore[union-attr]
