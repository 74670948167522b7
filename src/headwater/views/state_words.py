"""Intervals and times of day as Spark writes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from headwater.statefiles.sqltypes import Interval

_NANOS = 1_000_000_000
_MICROS = 1_000_000
_DAY_TIME_UNITS = ("day", "hour", "minute", "second")


def clock_time(nanos: int) -> str:
    """``10:08:16.239``: as many decimals as there are."""
    seconds, fraction = divmod(nanos, _NANOS)
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return shown + (f".{fraction:09d}".rstrip("0") if fraction else "")


def interval(value: Any, kind: Interval) -> str:
    """``INTERVAL '16-3' YEAR TO MONTH``; ``value`` is Arrow's, for either kind."""
    shown = _months(value.months, kind.units) if kind.months else _day_time(value, kind.units)
    return f"INTERVAL '{shown}' {kind.units.upper()}"


def _months(months: int, units: str) -> str:
    sign, rest = ("-", -months) if months < 0 else ("", months)
    match units:
        case "year":
            return f"{sign}{rest // 12}"
        case "month":
            return f"{sign}{rest}"
        case _:
            return f"{sign}{rest // 12}-{rest % 12}"


def _day_time(value: timedelta, units: str) -> str:
    micros = value // timedelta(microseconds=1)
    sign, rest = ("-", -micros) if micros < 0 else ("", micros)
    first, _, last = units.partition(" to ")
    begin, end = _DAY_TIME_UNITS.index(first), _DAY_TIME_UNITS.index(last or first)
    sizes = (86_400 * _MICROS, 3_600 * _MICROS, 60 * _MICROS, _MICROS)
    shown = ""
    for number in range(begin, end + 1):
        count, rest = divmod(rest, sizes[number])
        width = 2 if number > begin else 1
        shown += ("" if number == begin else " " if number == 1 else ":") + f"{count:0{width}d}"
    if end == len(sizes) - 1 and rest:
        shown += f".{rest:06d}".rstrip("0")
    return sign + shown


def calendar_interval(value: Any) -> str:
    """``16 years 1 months 17 days 4 hours 5 minutes 6.5 seconds``: parts that are zero are left out."""
    parts = _named(value.months, (("years", 12), ("months", 1)))
    parts += [f"{value.days} days"] if value.days else []
    micros = value.nanoseconds // 1000
    sign, rest = (-1, -micros) if micros < 0 else (1, micros)
    hours, rest = divmod(rest, 3_600 * _MICROS)
    minutes, rest = divmod(rest, 60 * _MICROS)
    parts += [f"{sign * hours} hours"] if hours else []
    parts += [f"{sign * minutes} minutes"] if minutes else []
    if rest:
        whole, fraction = divmod(rest, _MICROS)
        parts.append(
            ("-" if sign < 0 else "") + f"{whole}" + (f".{fraction:06d}".rstrip("0") if fraction else "") + " seconds"
        )
    return " ".join(parts) or "0 seconds"


def _named(total: int, units: tuple[tuple[str, int], ...]) -> list[str]:
    sign, rest = (-1, -total) if total < 0 else (1, total)
    found = []
    for name, size in units:
        count, rest = divmod(rest, size)
        if count:
            found.append(f"{sign * count} {name}")
    return found
