"""Warnings about restore points whose input Kafka has removed or will remove soon."""

from __future__ import annotations

import time

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.kafka.retention import Retention
from headwater.timemachine.keep import make_point
from headwater.web import restore_points_pane
from headwater.web.restore_points_pane import SOON_MS, PointReach
from headwater.web.watch import WatchedCheckpoint

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("earliest", "until_ms", "warning"),
    [
        (0, NOW_MS + SOON_MS + 1, None),
        (0, None, None),
        (0, NOW_MS + 3_600_000, "Kafka may remove its input from 2027-01-15 09:00:00 UTC on"),
        (10**9, NOW_MS + SOON_MS + 1, "unreachable: Kafka has removed records after it"),
    ],
)
def test_warnings(monkeypatch: pytest.MonkeyPatch, earliest: int, until_ms: int | None, warning: str | None) -> None:
    """A point gets a warning a day before its input expires by time, and another one when records are gone."""
    files = MemoryTree(dict(as_memory_files("kafka-changelog").contents))
    files.write("_headwater/job.json", b'{"job": "visits", "source": "kafka://127.0.0.1:9092/events"}')
    point = make_point(files, at="3")
    watched = WatchedCheckpoint("visits", lambda: files)
    watched.poll()
    assert watched.snapshot.points == (point,)
    assert watched.snapshot.kept == {3: ["batch-3"]}
    monkeypatch.setattr(
        restore_points_pane,
        "earliest_offsets",
        lambda uri, topics: {topic: dict.fromkeys(range(5), earliest) for topic in topics},
    )
    monkeypatch.setattr(restore_points_pane, "retention_from", lambda uri, starts: Retention(until_ms, None))
    reach = PointReach(watched)
    assert reach.warning(point, NOW_MS) is None
    reach.refresh(watched.snapshot.points)
    deadline = time.monotonic() + 10
    while reach.warning(point, NOW_MS) != warning or reach._refreshing.locked():
        assert time.monotonic() < deadline
        time.sleep(0.01)
