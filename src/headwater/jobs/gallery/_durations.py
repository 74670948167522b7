"""Spark's way to write a duration ("7 days", "1 hour 30 minutes"), for code that runs in Python."""

from __future__ import annotations

import re
from datetime import timedelta

PART = re.compile(r"(\d+)\s*(week|day|hour|minute|second|millisecond)s?")


def microseconds(text: str) -> int:
    """The time that a text means."""
    parts = PART.findall(text)
    if not parts or PART.sub("", text).strip():
        raise ValueError(f'{text!r} is not a duration: write it like "30 minutes"')
    return sum((timedelta(**{f"{unit}s": int(number)}) for number, unit in parts), timedelta()) // timedelta.resolution


def milliseconds(text: str) -> int:
    return microseconds(text) // 1000
