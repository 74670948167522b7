"""Conversion between epoch milliseconds and ISO 8601 in UTC (``2026-07-01T10:30:00.000Z``), and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_from_ms(epoch_ms: int) -> str:
    """Return the time as ISO 8601, or as ``N ms`` outside the years 1 to 9999, so that corrupt data never raises."""
    try:
        moment = EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return f"{epoch_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def ms_from_iso(text: str) -> int:
    """Return the epoch milliseconds of any ISO 8601 time; one without a time zone is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)


def seconds_from_text(text: str) -> float:
    """Return the seconds of a duration such as ``500ms``, ``5s``, ``2m``, ``1h``, ``7d`` or ``10 seconds``."""
    matched = DURATION.fullmatch(text.strip().lower())
    if not matched:
        raise ValueError(f"{text!r} is not a duration")
    unit = "ms" if matched[2].startswith(("ms", "milli")) else matched[2][0]
    return float(matched[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]
