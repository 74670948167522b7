"""Durations as Spark writes them ("7 days", "1 hour 30 minutes") and dates as epoch milliseconds, for custom state."""

from __future__ import annotations

import re
from datetime import date, timedelta

EPOCH, DAY = date(1970, 1, 1), timedelta(days=1)
DAY_MS = DAY // timedelta(milliseconds=1)
PART = re.compile(r"(\d+)\s*(week|day|hour|minute|second|millisecond)s?")


def microseconds(text: str) -> int:
    """Return the length of a duration such as ``1 hour 30 minutes``."""
    parts = PART.findall(text)
    if not parts or PART.sub("", text).strip():
        raise ValueError(f'{text!r} is not a valid duration, such as "30 minutes"')
    return sum((timedelta(**{f"{unit}s": int(number)}) for number, unit in parts), timedelta()) // timedelta.resolution


def milliseconds(text: str) -> int:
    """Return the length of a duration such as ``7 days``."""
    return microseconds(text) // 1000


def midnight_ms(day: date) -> int:
    """Return the start of a date as watermarks and timers count time."""
    return (day - EPOCH) // DAY * DAY_MS


def date_at(ms: int) -> date:
    """Return the date of a watermark or timer."""
    return EPOCH + ms // DAY_MS * DAY
