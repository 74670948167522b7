"""Times, durations, sizes and long texts in their short form."""

from __future__ import annotations

import pytest

from headwater.views.formatting import format_bytes, format_duration, format_time, shorten


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_400, "1.4 s"),
        (60_000, "1 min"),
        (312_000, "5 min 12 s"),
        (12_000_000, "3 h 20 min"),
        (187_200_000, "2 d 4 h"),
        (-2_000, "-2.0 s"),
    ],
)
def test_duration(milliseconds: int | None, text: str) -> None:
    """A duration is shown in its two largest units."""
    assert format_duration(milliseconds) == text


def test_time() -> None:
    """A time is shown to the second, in UTC."""
    assert format_time(1_704_067_264_999) == "2024-01-01 00:01:04"
    assert format_time(None) == "-"


def test_bytes() -> None:
    """A size has three significant digits at most."""
    assert [format_bytes(size) for size in (None, 512, 3_400_000, 120_000_000_000, 2 * 10**15)] == [
        "-",
        "512 B",
        "3.4 MB",
        "120 GB",
        "2000.0 TB",
    ]


def test_shortened_text() -> None:
    """A text that is cut off ends with an ellipsis."""
    assert (shorten("abc", 3), shorten("abcd", 3)) == ("abc", "ab…")
