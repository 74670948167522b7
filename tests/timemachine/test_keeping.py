"""Restore points that a running stream makes by itself."""

from __future__ import annotations

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.restore_points import restore_points
from headwater.core.errors import UsageProblem
from headwater.timemachine.keep import make_point
from headwater.timemachine.keeping import Keeper, KeepPolicy

HOUR_MS = 3_600_000


class Stream:
    """A checkpoint whose newest batches are committed one by one, with a keeper on a clock of its own."""

    def __init__(self, policy: KeepPolicy) -> None:
        self.all = dict(as_memory_files("aggregation-changelog").contents)
        self.files = MemoryTree(self.all)
        self.now_ms = 0
        self.warnings: list[str] = []
        self.policy = policy
        self.keeper = self.start()

    def start(self) -> Keeper:
        return Keeper(
            self.files,
            self.policy,
            open_sink=lambda folder: MemoryTree(),
            warn=self.warnings.append,
            clock=lambda: self.now_ms,
        )

    def batch(self, number: int, at_ms: int) -> list[str]:
        """Commit up to a batch; return the names of the points that exist after it."""
        later = {
            path
            for path in self.all
            if path.startswith("commits/") and int("".join(filter(str.isdigit, path))) > number
        }
        kept = {path: data for path, data in self.files.contents.items() if path.startswith("_headwater/")}
        self.files.contents = {path: data for path, data in self.all.items() if path not in later} | kept
        self.now_ms = at_ms
        self.keeper.after_batch()
        self.keeper.__exit__()
        return [point.name for point in restore_points(self.files)]


def test_a_point_at_each_interval_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch makes a point, the next one is due an hour later, and old ones are dropped; named ones stay."""
    stream = Stream(KeepPolicy(HOUR_MS, 2 * HOUR_MS))
    monkeypatch.setattr("headwater.timemachine.keep.time.time_ns", lambda: stream.now_ms * 1_000_000)
    assert stream.batch(3, 1) == ["batch-3"]
    assert stream.batch(4, HOUR_MS - 1) == ["batch-3"]
    make_point(stream.files, "mine")
    assert stream.batch(5, HOUR_MS + 1) == ["batch-3", "mine", "batch-5"]
    assert stream.batch(7, 2 * HOUR_MS + 2) == ["mine", "batch-5", "batch-7"]
    assert stream.batch(9, 9 * HOUR_MS) == ["mine", "batch-9"]
    assert stream.warnings == []


def test_a_restart_continues_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is restarted often does not make more points."""
    stream = Stream(KeepPolicy(HOUR_MS))
    monkeypatch.setattr("headwater.timemachine.keep.time.time_ns", lambda: stream.now_ms * 1_000_000)
    assert stream.batch(3, 1) == ["batch-3"]
    stream.keeper = stream.start()
    assert stream.batch(4, HOUR_MS // 2) == ["batch-3"]
    assert stream.batch(5, HOUR_MS + 2) == ["batch-3", "batch-5"]


def test_no_second_point_of_the_same_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no batch was committed since, nothing is made, and the next batch is not made to wait for the interval."""
    stream = Stream(KeepPolicy(HOUR_MS))
    monkeypatch.setattr("headwater.timemachine.keep.time.time_ns", lambda: stream.now_ms * 1_000_000)
    stream.batch(3, 1)
    assert stream.batch(3, HOUR_MS + 2) == ["batch-3"]
    assert stream.batch(4, HOUR_MS + 61_000) == ["batch-3", "batch-4"]


def test_a_failure_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream continues, and a later batch tries again."""
    stream = Stream(KeepPolicy(HOUR_MS))
    link = MemoryTree.link

    def fail(*_: object) -> None:
        raise PermissionError("the disk is read-only")

    monkeypatch.setattr(MemoryTree, "link", fail)
    assert stream.batch(3, 1) == []
    assert stream.warnings == ["cannot make a restore point: PermissionError: the disk is read-only"]
    monkeypatch.setattr(MemoryTree, "link", link)
    assert stream.batch(4, 1000) == []
    assert stream.batch(5, 61_001) == ["batch-5"]


@pytest.mark.parametrize(
    ("every", "keep_for", "problem"),
    [
        (None, "7d", "has no effect without"),
        ("0s", None, "greater than zero"),
        ("often", None, "greater than zero"),
        ("1h", "soon", "greater than zero"),
        ("1d", "1h", "shorter than --keep-every"),
    ],
)
def test_invalid_policies(every: str | None, keep_for: str | None, problem: str) -> None:
    """A policy that cannot work is refused before the stream starts."""
    with pytest.raises(UsageProblem, match=problem):
        KeepPolicy.parse(every, keep_for)


def test_valid_policies() -> None:
    """Durations are written as elsewhere, with days."""
    assert KeepPolicy.parse(None, None) is None
    assert KeepPolicy.parse("1h", "7d") == KeepPolicy(HOUR_MS, 7 * 24 * HOUR_MS)
    assert KeepPolicy.parse("30 minutes", None) == KeepPolicy(HOUR_MS // 2, None)
