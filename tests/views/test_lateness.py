"""Summary of how late records were."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.views.lateness import lateness_summary, spell_seconds, suggested_extra_delay_seconds


def late(batch: int, minutes: int, compared: str | None = None) -> dict[str, Any]:
    """Return a record that is this late for a watermark of noon."""
    at = f"2024-03-01T{11 - minutes // 60:02d}:{(60 - minutes % 60) % 60:02d}:00.000Z"
    return {
        "batch_id": batch, "reason": "late", "event_time": at, "watermark": "2024-03-01T12:00:00.000Z",
        "compared": compared or at,
    }  # fmt: skip


MALFORMED = {"batch_id": 2, "reason": "malformed", "event_time": None, "watermark": None, "compared": None}


def test_summary_per_batch_and_reason() -> None:
    """Late records are counted by their lag, and malformed ones as a whole."""
    assert lateness_summary([late(2, 5), MALFORMED, late(2, 7), late(1, 30)]) == [
        {"batch_id": 1, "reason": "late", "records": 1, "behind": {"up to 1 h": 1}},
        {"batch_id": 2, "reason": "late", "records": 2, "behind": {"up to 10 min": 2}},
        {"batch_id": 2, "reason": "malformed", "records": 1, "behind": {}},
    ]


def test_a_delay_that_keeps_nearly_all() -> None:
    """The suggested delay keeps 99% of the late records: the latest of 100 may be dropped, but not both of 101."""
    many = [late(1, 5) for _ in range(99)]
    assert suggested_extra_delay_seconds([*many, late(1, 50)]) == 301
    assert suggested_extra_delay_seconds([*many, late(1, 50), late(1, 50)]) == 3001
    assert suggested_extra_delay_seconds([MALFORMED]) is None


def test_lag_of_a_window() -> None:
    """The lag of a windowed record is that of the end of its window."""
    assert suggested_extra_delay_seconds([late(1, 9, compared="2024-03-01T11:55:00.000Z")]) == 301


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 seconds"), (61, "1 minute 1 second"), (90_000, "1 day 1 hour"), (7200, "2 hours")]
)
def test_spelled_seconds(seconds: int, text: str) -> None:
    """A delay is shown as it is written in a job."""
    assert spell_seconds(seconds) == text
