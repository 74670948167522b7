"""Times, spans and counts in the short form in which people read them in a table."""

from __future__ import annotations

from itertools import pairwise

from headwater.core.times import iso_from_ms

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def moment(epoch_ms: int | None) -> str:
    """``2026-07-01 10:30:05`` in UTC; a dash for none."""
    if epoch_ms is None:
        return "-"
    return iso_from_ms(epoch_ms).replace("T", " ").partition(".")[0]


def span(milliseconds: int | None) -> str:
    """``230 ms``, ``1.4 s``, ``5 min 12 s``, ``3 h 20 min``, ``2 d 4 h``; a dash for none."""
    if milliseconds is None:
        return "-"
    sign, rest = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    if rest < 1_000:
        return f"{sign}{rest} ms"
    if rest < 60_000:
        return f"{sign}{rest / 1_000:.1f} s"
    for (unit, size), (lesser, lesser_size) in pairwise(_UNITS):
        if rest >= size:
            tail = rest % size // lesser_size
            return f"{sign}{rest // size} {unit}" + (f" {tail} {lesser}" if tail else "")
    return f"{sign}{rest // 1_000} s"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(most - 1, 0)]}…"
