"""Spark's way to write a duration ("7 days", "1 hour 30 minutes"), and dates on its clock, for code that runs in Python."""

from __future__ import annotations

import re
from datetime import date, timedelta

EPOCH, DAY = date(1970, 1, 1), timedelta(days=1)
DAY_MS = DAY // timedelta(milliseconds=1)
PART = re.compile(r"(\d+)\s*(week|day|hour|minute|second|millisecond)s?")


def microseconds(text: str) -> int:
    """The time that a text means."""
    parts = PART.findall(text)
    if not parts or PART.sub("", text).strip():
        raise ValueError(f'{text!r} is not a duration: write it like "30 minutes"')
    return sum((timedelta(**{f"{unit}s": int(number)}) for number, unit in parts), timedelta()) // timedelta.resolution


def milliseconds(text: str) -> int:
    return microseconds(text) // 1000


def midnight_ms(day: date) -> int:
    """Where a date lies on the clock of watermarks and timers."""
    return (day - EPOCH) // DAY * DAY_MS


def date_at(ms: int) -> date:
    return EPOCH + ms // DAY_MS * DAY
