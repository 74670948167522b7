"""Revisions, the names of batches."""

from __future__ import annotations

import pytest

from headwater.checkpoint.revisions import resolve, time_ms
from headwater.core.errors import UsageProblem
from headwater.core.times import ms_from_iso

COMMITTED = {
    4: ms_from_iso("2026-07-01T23:50:00Z"),
    5: ms_from_iso("2026-07-02T00:10:00Z"),
    6: ms_from_iso("2026-07-02T10:30:00Z"),
    7: ms_from_iso("2026-07-02T10:45:00Z"),
}
BATCHES = (4, 5, 6, 7, 8)


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("5", 5),
        ("8", 8),
        ("HEAD", 7),
        ("HEAD~0", 7),
        ("HEAD~3", 4),
        ("@10:30", 6),
        ("@10:29:59", 5),
        ("@23:55", 4),
        ("@2026-07-02T00:10:00Z", 5),
        ("@2026-07-02T12:20+02:00", 5),
        ("@2026-07-02T12:30+02:00", 6),
        ("@2030-01-01", 7),
    ],
)
def test_resolved(text: str, batch: int) -> None:
    """A batch can be named by number, relative to HEAD or by time; a time of day is the last one before HEAD."""
    assert resolve(text, BATCHES, COMMITTED) == batch


@pytest.mark.parametrize(
    "text", ["9", "HEAD~4", "@2026-07-01T00:00Z", "@25:99", "@noon", "x", "", "-1", "HEAD~", "1.0"]
)
def test_refused(text: str) -> None:
    """A text that does not name a batch is a usage error."""
    with pytest.raises(UsageProblem):
        resolve(text, BATCHES, COMMITTED)


@pytest.mark.parametrize("text", ["HEAD", "@10:30", "0"])
def test_no_batches(text: str) -> None:
    """In a checkpoint without batches, every revision is a usage error."""
    with pytest.raises(UsageProblem):
        resolve(text, (), {})


def test_duration_is_subtracted() -> None:
    """15m is a quarter of an hour before the given time."""
    assert time_ms("15m", not_after_ms=1_000_000_000) == 1_000_000_000 - 900_000
