"""Conversion of times to text and back."""

from __future__ import annotations

import pytest

from headwater.core.times import iso_from_ms, ms_from_iso, seconds_from_text


@pytest.mark.parametrize("epoch_ms", [0, 1, 999, 1_704_067_264_123, -1])
def test_text_and_back(epoch_ms: int) -> None:
    """A time that is formatted and parsed again is the same."""
    assert ms_from_iso(iso_from_ms(epoch_ms)) == epoch_ms


def test_form() -> None:
    """Times are shown in UTC with milliseconds and a Z."""
    assert iso_from_ms(1_704_067_264_001) == "2024-01-01T00:01:04.001Z"


def test_time_without_zone_is_utc() -> None:
    """A time without a time zone is UTC; one with a time zone is converted."""
    assert ms_from_iso("2024-01-01T00:00:00") == ms_from_iso("2024-01-01T02:00:00+02:00") == 1_704_067_200_000


def test_time_beyond_the_calendar_is_shown_as_a_number() -> None:
    """Milliseconds outside the calendar do not raise."""
    assert iso_from_ms(2**62) == f"{2**62} ms"
    assert iso_from_ms(-(2**62)) == f"{-(2**62)} ms"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("500ms", 0.5),
        ("1.5 seconds", 1.5),
        ("2m", 120),
        ("1 minute", 60),
        ("1h", 3600),
        (" 10 Seconds ", 10),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    """A duration is a number with a unit, abbreviated or written out."""
    assert seconds_from_text(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 weeks", "5s5s", "1e3s", "soon"])
def test_invalid_duration(text: str) -> None:
    """A number without a unit, or with an unknown one, is not a duration."""
    with pytest.raises(ValueError, match="is not a duration"):
        seconds_from_text(text)
