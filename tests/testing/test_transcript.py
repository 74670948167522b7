"""How rows of a test are fed and compared, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from headwater.jobs.endpoints import Decoding
from headwater.testing.records import as_lines
from headwater.testing.scenario import _is_at
from headwater.testing.transcript import as_text, difference

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_times_are_compared_in_microseconds() -> None:
    """Times in any form are the same if they are, to the microsecond."""
    early, late = NOON.replace(microsecond=100), NOON.replace(microsecond=900)
    assert len(difference([{"at": early}], [{"at": late}])) == 2
    for same in (early.replace(tzinfo=None), early.astimezone(timezone(timedelta(hours=1))), early.isoformat()):
        assert difference([{"at": [same]}], [{"at": [early]}]) == []
    assert as_text({"at": early}) == '{"at": "2026-01-01T12:00:00.000100Z"}'
    assert as_text({"at": NOON}) == '{"at": "2026-01-01T12:00:00.000Z"}'


def test_emitted_times_have_milliseconds() -> None:
    """Rows that Spark returns as JSON have milliseconds, and so has what a test expects of them."""
    exact = NOON.replace(microsecond=123_456)
    assert difference([{"at": exact}], [{"at": "2026-01-01T12:00:00.123Z"}], in_ms=True) == []
    assert difference([{"at": exact}], [{"at": "2026-01-01T12:00:00.124Z"}], in_ms=True)


@pytest.mark.parametrize(
    ("moment", "same"),
    [
        ("10:40", True),
        ("10:40:00", True),
        ("10:40:00.000", True),
        ("2026-01-01T10:40:00Z", True),
        ("10:41", False),
        ("10:40:01", False),
        ("2026-01-02T10:40:00Z", False),
    ],
)
def test_watermarks_are_compared_to_the_millisecond(moment: str, same: bool) -> None:
    """A time of day without seconds is a full minute."""
    watermark_ms = int(NOON.replace(hour=10, minute=40).timestamp()) * 1000
    assert _is_at(watermark_ms, moment) is same
    assert not _is_at(watermark_ms + 59_999, moment)
    assert not _is_at(watermark_ms + 1, moment)
    assert not _is_at(None, moment)


def test_decimals_and_bytes_are_fed() -> None:
    """Decimals and bytes are fed as the text that Spark reads; other values that JSON does not have are refused."""
    row = {"price": Decimal("1.50"), "large": Decimal("1E+3"), "raw": b"\xff", "day": date(2026, 1, 1)}
    (line,) = as_lines([row], Decoding("price DECIMAL(3, 1)", "json"), ())
    assert json.loads(line) == {"price": "1.50", "large": "1000", "raw": "/w==", "day": "2026-01-01"}
    assert as_lines([row], Decoding("price DECIMAL(3, 1)", "csv"), ["price", "large"]) == ["1.50,1000"]
    with pytest.raises(TypeError, match="a value of the type set cannot be fed as JSON"):
        as_lines([{"a": {1}}], Decoding("a INT", "json"), ())
