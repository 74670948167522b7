"""Concurrent reads of state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from corpus_support import CorpusCheckpoint
from headwater.checkpoint.locate import open_checkpoint
from headwater.views.page_state import PageRequest, StateView
from headwater.web import state_cache
from headwater.web.state_cache import StateCache
from headwater.web.watch import WatchedCheckpoint

TIMEOUT_SECONDS = 240


@pytest.fixture
def cache(corpus: Callable[[str], CorpusCheckpoint]) -> StateCache:
    watched = WatchedCheckpoint("name", lambda: open_checkpoint(str(corpus("aggregation-changelog").path)))
    watched.poll()
    return StateCache(watched)


def test_different_batches_are_read_at_the_same_time(cache: StateCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read waits for no other read: each of these two continues only after the other has started."""
    both_started = threading.Barrier(2)

    def read(*arguments: object) -> StateView:
        both_started.wait(TIMEOUT_SECONDS)
        return StateView(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(state_cache, "StateView", read)
    (target,) = cache.targets(3)
    with ThreadPoolExecutor() as readers:
        first, second = (readers.submit(cache.view, target, batch) for batch in (3, 4))
        assert (first.result().batch, second.result().batch) == (3, 4)


def test_readers_of_one_batch_share_a_read(cache: StateCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readers of the same batch and store get the same view, and the state is read once."""
    started, may_finish, reads = threading.Event(), threading.Event(), []

    def read(*arguments: object) -> StateView:
        reads.append(arguments)
        started.set()
        assert may_finish.wait(TIMEOUT_SECONDS)
        return StateView(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(state_cache, "StateView", read)
    (target,) = cache.targets(3)
    with ThreadPoolExecutor() as readers:
        first = readers.submit(cache.view, target, 3)
        assert started.wait(TIMEOUT_SECONDS)
        second = readers.submit(cache.view, target, 3)
        may_finish.set()
        assert first.result() is second.result()
    assert cache.view(target, 3) is first.result()
    assert len(reads) == 1


def test_failed_read_is_not_kept(cache: StateCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a read that failed, the next reader tries again."""

    def fail(*arguments: object) -> StateView:
        raise OSError("gone")

    (target,) = cache.targets(3)
    with monkeypatch.context() as broken:
        broken.setattr(state_cache, "StateView", fail)
        with pytest.raises(OSError, match="gone"):
            cache.view(target, 3)
    assert cache.view(target, 3).batch == 3


def test_job_view_is_read_once_per_batch(corpus: Callable[[str], CorpusCheckpoint]) -> None:
    """The rows of the job's view are paged, searched and sorted like a state, and read once for each batch."""
    path = str(corpus("aggregation-changelog").path)
    watched = WatchedCheckpoint("name", lambda: open_checkpoint(path))
    watched.poll()
    reads: list[tuple[str, int]] = []

    def find(location: str, batch: int) -> list[dict[str, object]]:
        reads.append((location, batch))
        return [{"user": "Sankar", "total": 200}, {"user": "Jade", "total": 800}]

    cache = StateCache(watched, find)
    assert not cache.has_job_view, "the checkpoint does not record a job"
    view = cache.job_view(3)
    assert cache.job_view(3) is view
    assert cache.job_view(4).batch == 4
    assert reads == [(path, 3), (path, 4)]
    assert [(column.name, column.is_number) for column in view.columns] == [("user", False), ("total", True)]
    assert [row["c0"]["now"] for row in view.page(PageRequest(order_by="c1", descending=True)).rows] == [
        "Jade",
        "Sankar",
    ]
    assert view.page(PageRequest(search="sank")).matching == 1
    assert view.page(PageRequest(start=1, size=1)).rows[0]["c1"]["now"] == "800"
    assert StateCache(watched, lambda *_: []).job_view(3).page().rows == []
