"""Checkpoints that the server opens for readers: it waits for no store, and polls nothing that readers have left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.streams import write_stream
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.local_tree import LocalTree
from headwater.fleet.fleet import Fleet
from headwater.web import relatives as relatives_module
from headwater.web import server
from headwater.web.relatives import KnownStream, Relatives
from headwater.web.server import OpenStreams
from headwater.web.slow_runs import THREADS, SlowRuns
from headwater.web.state_pane import StatePane
from headwater.web.watch import WatchedCheckpoint
from waiting_support import wait_until

PATIENCE_SECONDS = 2.0


def threads_of(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == f"watch {name}"]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    for name in ("a", "b"):
        write_stream(tmp_path / name)
    found = Fleet([str(tmp_path)])
    found.refresh()
    return found


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A store that does not answer before the event is set."""
    answers = threading.Event()

    def open_late(location: str, **_: object) -> FileTree:
        answers.wait()
        return LocalTree(Path(location))

    monkeypatch.setattr(server, "open_checkpoint", open_late)
    monkeypatch.setattr(relatives_module, "open_checkpoint", open_late)
    yield answers
    answers.set()


def test_no_reader_waits_for_a_store(fleet: Fleet, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams whose store does not answer are closed without waiting for it."""
    monkeypatch.setattr(server, "UNUSED_SECONDS", -1.0)
    streams = OpenStreams(fleet)
    assert streams.get("a") is not None
    wait_until(lambda: threads_of("a"), "the thread that opens the store")
    started = time.monotonic()
    streams.close_unused()
    assert streams.get("b") is not None
    streams.close()
    assert time.monotonic() - started < PATIENCE_SECONDS
    hanging.set()
    wait_until(lambda: not threads_of("a") and not threads_of("b"), "the end of the threads")


def test_relatives_are_closed_without_waiting(
    fleet: Fleet, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are the relatives of a checkpoint."""
    monkeypatch.setattr(relatives_module, "UNUSED_SECONDS", -1.0)
    one, other = fleet.snapshot.streams
    shown = WatchedCheckpoint(one.name, lambda: LocalTree(Path(one.location)))
    shown.poll()
    found = Relatives(lambda: [KnownStream(other.name, other.location, forked_from=one.location)])
    assert found.of(shown) == []
    started = time.monotonic()
    found.close_unused()
    assert time.monotonic() - started < PATIENCE_SECONDS
    hanging.set()
    wait_until(lambda: not threads_of(other.name), "the end of the thread")


def test_streams_that_readers_have_left(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stops polling a stream that no page has shown lately, also if no reader comes again."""
    monkeypatch.setattr(server, "UPKEEP_SECONDS", 0.02)
    streams = OpenStreams(fleet)
    shared = streams.get("a")
    assert shared is not None and streams.get("b") is not None
    closed: list[str] = []
    relatives = SimpleNamespace(close_unused=lambda: closed.append("relatives"))
    page_server: Any = SimpleNamespace(_stopped=threading.Event(), _streams=streams, _relatives=relatives)
    upkeep = threading.Thread(target=server.PageServer._close_unused, args=(page_server,), daemon=True)
    upkeep.start()
    shared.used_at -= server.UNUSED_SECONDS + 1
    wait_until(lambda: not threads_of("a"), "the end of the stream that nobody reads")
    assert threads_of("b") and closed
    page_server._stopped.set()
    upkeep.join()
    assert streams.get("a") is not shared
    streams.close()


def test_slow_work_stops_nobody_else() -> None:
    """Slow work has threads of its own: one run of each reader at a time, and none that nobody wants any more."""

    async def readers() -> tuple[list[int | None], int]:
        wanted, free, running, most = {0}, threading.Event(), [], []

        def work(number: int) -> int:
            running.append(number)
            most.append(len(running))
            free.wait()
            running.remove(number)
            return number

        everyone = [SlowRuns() for _ in range(20)]
        others = [asyncio.create_task(one.run(lambda: True, work, 7)) for one in everyone]
        mine = SlowRuns()
        runs = [asyncio.create_task(mine.run(lambda n=n: n in wanted, work, n)) for n in range(3)]
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 60) == 1
        free.set()
        await asyncio.gather(*others)
        return [await run for run in runs], max(most)

    found: list[tuple[list[int | None], int]] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(readers())))  # the browser has a loop in this one
    thread.start()
    thread.join()
    assert found == [([0, None, None], THREADS)]


def test_state_of_a_batch_that_was_left() -> None:
    """A read that waited for a thread until another batch was selected is not made."""

    class Unread:
        def targets(self, batch: int) -> list[Any]:
            raise AssertionError(f"batch {batch} is read")

    cache: Any = Unread()
    pane = StatePane(cache, lambda _: None, lambda: None)
    pane._request = 2
    assert pane._read(7, 1) is None
    with pytest.raises(AssertionError):
        pane._read(7, 2)
