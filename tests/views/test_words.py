"""Times and spans as people read them."""

from __future__ import annotations

import pytest

from headwater.views.words import count, moment, shortened, span


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
def test_span(milliseconds: int | None, text: str) -> None:
    """A span takes the two largest units that say something."""
    assert span(milliseconds) == text


def test_moment() -> None:
    """A moment is shown to the second, in UTC."""
    assert moment(1_704_067_264_999) == "2024-01-01 00:01:04"
    assert moment(None) == "-"


def test_counts_and_cuts() -> None:
    """One is singular, thousands have a comma, and a cut text ends in an ellipsis."""
    assert (count(1, "file"), count(2_000, "file")) == ("1 file", "2,000 files")
    assert (shortened("abc", 3), shortened("abcd", 3)) == ("abc", "ab…")
