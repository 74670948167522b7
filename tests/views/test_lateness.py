"""How late records were, in short."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.views.lateness import lateness_summary, spelled_seconds, suggested_extra_delay_seconds


def late(batch: int, minutes: int, compared: str | None = None) -> dict[str, Any]:
    """Behind a watermark of noon."""
    at = f"2024-03-01T{11 - minutes // 60:02d}:{(60 - minutes % 60) % 60:02d}:00.000Z"
    return {
        "batch_id": batch, "reason": "late", "event_time": at, "watermark": "2024-03-01T12:00:00.000Z",
        "compared": compared or at,
    }  # fmt: skip


MALFORMED = {"batch_id": 2, "reason": "malformed", "event_time": None, "watermark": None, "compared": None}


def test_summary_per_batch_and_reason() -> None:
    """Late records are counted by how far behind they were, malformed ones by their number."""
    assert lateness_summary([late(2, 5), MALFORMED, late(2, 7), late(1, 30)]) == [
        {"batch_id": 1, "reason": "late", "records": 1, "behind": {"up to 1 h": 1}},
        {"batch_id": 2, "reason": "late", "records": 2, "behind": {"up to 10 min": 2}},
        {"batch_id": 2, "reason": "malformed", "records": 1, "behind": {}},
    ]


def test_a_delay_that_keeps_nearly_all() -> None:
    """One record in a hundred may stay out; of one hundred and one, the last two are enough."""
    many = [late(1, 5) for _ in range(99)]
    assert suggested_extra_delay_seconds([*many, late(1, 50)]) == 301
    assert suggested_extra_delay_seconds([*many, late(1, 50), late(1, 50)]) == 3001
    assert suggested_extra_delay_seconds([MALFORMED]) is None


def test_what_is_compared_counts() -> None:
    """The end of the window has to come after the watermark, not the record itself."""
    assert suggested_extra_delay_seconds([late(1, 9, compared="2024-03-01T11:55:00.000Z")]) == 301


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 seconds"), (61, "1 minute 1 second"), (90_000, "1 day 1 hour"), (7200, "2 hours")]
)
def test_spelled(seconds: int, text: str) -> None:
    """As one writes it in a job."""
    assert spelled_seconds(seconds) == text
