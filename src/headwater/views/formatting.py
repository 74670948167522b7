"""Times, durations, sizes and long texts in the short form that tables use."""

from __future__ import annotations

from itertools import pairwise

from headwater.core.times import iso_from_ms

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def format_time(epoch_ms: int | None) -> str:
    """Return ``2026-07-01 10:30:05`` in UTC; a dash for None."""
    if epoch_ms is None:
        return "-"
    return iso_from_ms(epoch_ms).replace("T", " ").partition(".")[0]


def format_duration(milliseconds: int | None) -> str:
    """Return ``230 ms``, ``1.4 s``, ``5 min 12 s``, ``3 h 20 min`` or ``2 d 4 h``; a dash for None."""
    if milliseconds is None:
        return "-"
    sign, rest = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    if rest < 1_000:
        return f"{sign}{rest} ms"
    if rest < 60_000:
        return f"{sign}{rest / 1_000:.1f} s"
    for (unit, size), (smaller, smaller_size) in pairwise(_UNITS):
        if rest >= size:
            tail = rest % size // smaller_size
            return f"{sign}{rest // size} {unit}" + (f" {tail} {smaller}" if tail else "")
    return f"{sign}{rest // 1_000} s"


def format_bytes(number: int | None) -> str:
    """Return ``512 B``, ``3.4 MB`` or ``120 GB``; a dash for None."""
    if number is None:
        return "-"
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def shorten(text: str, length: int) -> str:
    """Return a text of at most this length; one that is cut off ends with an ellipsis."""
    return text if len(text) <= length else f"{text[: max(length - 1, 0)]}…"
