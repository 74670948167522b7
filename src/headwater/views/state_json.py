"""State values as JSON text, as Spark's ``to_json`` writes them. Works on entire Arrow columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.statefiles import buffers
from headwater.statefiles.sqltypes import Array, Atomic, Decimal, Interval, Map, SqlType, Struct

_NANOS = 1_000_000_000
_MICROS = 1_000_000
_DAY_TIME_UNITS = ("day", "hour", "minute", "second")
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_INTEGER = r"^-?[0-9]+$"
_NULL, _NO_TEXT, _EMPTY, _COMMA = map(buffers.text, ("null", None, "", ","))
_LARGEST_PLAIN_YEAR_US = 253_402_300_800_000_000  # start of the year 10000
_SMALLEST_PLAIN_YEAR_US = -62_167_219_200_000_000  # start of the year 0


def json_texts(kind: SqlType, values: pa.Array) -> pa.Array:
    """Return each value as JSON text; a null as the text ``null``."""
    return pc.coalesce(_texts_or_null(kind, values), _NULL)


def json_object(names: list[str], texts: list[pa.Array]) -> pa.Array:
    """Return an object per row, with these names and the JSON texts of these columns."""
    if not names:
        raise ValueError("an object without fields has no length")
    parts: list[Any] = []
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        parts += [buffers.text(("," if number else "{") + json.dumps(name, ensure_ascii=False) + ":"), text]
    return pc.binary_join_element_wise(*parts, buffers.text("}"), _EMPTY)


def _texts_or_null(kind: SqlType, values: pa.Array) -> pa.Array:
    match kind:
        case Atomic(name):
            return _ATOMIC[name](values) if name in _ATOMIC else values.cast(pa.string())
        case Decimal():
            return values.cast(pa.string())
        case Interval():
            return _one_by_one(values, lambda value: _quote(interval(value, kind)))
        case Struct(fields):
            return _struct(fields, values)
        case Array(element):
            joined = pc.binary_join(_with_values(values, json_texts(element, values.flatten())), _COMMA)
            return _wrapped("[", joined, "]")
        case Map(key, value):
            return _map(key, value, values)


def _struct(fields: tuple[Any, ...], values: pa.Array) -> pa.Array:
    if not fields:
        return pc.if_else(values.is_valid(), buffers.text("{}"), _NO_TEXT)
    columns = values.flatten()
    texts = [json_texts(field.type, column) for field, column in zip(fields, columns, strict=True)]
    objects = json_object([field.name for field in fields], texts)
    return objects if not values.null_count else pc.if_else(values.is_valid(), objects, _NO_TEXT)


def _map(key: SqlType, value: SqlType, values: pa.Array) -> pa.Array:
    begin, end = (values.offsets[0].as_py(), values.offsets[-1].as_py()) if len(values.offsets) else (0, 0)
    keys = json_texts(key, values.keys.slice(begin, end - begin))
    if key != Atomic("string"):
        bare = pc.replace_substring_regex(keys, r'^"|"$', "")
        keys = _wrapped('"', bare, '"')
    items = json_texts(value, values.items.slice(begin, end - begin))
    pairs = pc.binary_join_element_wise(keys, items, buffers.text(":"))
    return _wrapped("{", pc.binary_join(_with_values(values, pairs), _COMMA), "}")


def _with_values(lists: pa.Array, texts: pa.Array) -> pa.Array:
    """Return lists of the same lengths with other elements."""
    offsets = buffers.as_numbers(lists.offsets, "<i4")
    begin = offsets[0] if len(offsets) else 0
    mask = pc.invert(lists.is_valid()) if lists.null_count else None
    return pa.ListArray.from_arrays(buffers.numbers(offsets - begin), texts, mask=mask)


def _wrapped(before: str, texts: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(buffers.text(before), texts, buffers.text(after), _EMPTY)


def _strings(values: pa.Array) -> pa.Array:
    texts = values
    if pc.any(pc.match_substring_regex(texts, _NEEDS_ESCAPE)).as_py():
        distinct = texts.dictionary_encode()
        encoded = distinct.dictionary.cast(pa.binary()).to_pylist()
        escaped = buffers.texts([_quote(text.decode("utf-8", "replace"))[1:-1] for text in encoded])
        texts = pa.DictionaryArray.from_arrays(distinct.indices, escaped).cast(pa.string())
    return _wrapped('"', texts, '"')


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _floats(values: pa.Array) -> pa.Array:
    texts = pc.replace_substring_regex(values.cast(pa.string()), r"e\+?", "E")
    texts = pc.if_else(pc.match_substring_regex(texts, _INTEGER), _wrapped("", texts, ".0"), texts)
    if pc.all(pc.is_finite(values)).as_py() in (True, None):
        return texts
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    for name, shown in names.items():
        texts = pc.if_else(pc.equal(texts, buffers.text(name)), buffers.text(f'"{shown}"'), texts)
    return texts


def _timestamps(values: pa.Array, ending: bytes) -> pa.Array:
    """Return texts such as ``2026-07-01T10:30:05.123``, computed digit by digit for all rows at once."""
    micros = buffers.as_numbers(values.cast(pa.int64()), "<i8")
    if values.null_count:
        micros = np.where(buffers.as_mask(values.is_valid()), micros, 0)
    odd = (micros >= _LARGEST_PLAIN_YEAR_US) | (micros < _SMALLEST_PLAIN_YEAR_US)
    plain = np.where(odd, 0, micros) // 1000
    days, in_day = np.divmod(plain, 86_400_000)
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    day = (days.astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64) + 1
    year, month = np.divmod(months.astype(np.int64) + 1970 * 12, 12)
    numbers = [(year, 4), (month + 1, 2), (day, 2), (in_day // 3_600_000, 2), (in_day // 60_000 % 60, 2)]
    numbers += [(in_day // 1000 % 60, 2), (in_day % 1000, 3)]
    texts = _digits(numbers, b"--T::.", b'"', ending + b'"')
    shown = pa.Array.from_buffers(pa.binary(texts.shape[1]), len(texts), [None, pa.py_buffer(texts)])
    shown = shown.cast(pa.binary()).cast(pa.string())
    if odd.any():
        distant = buffers.texts([_distant_time(int(value), ending.decode()) for value in micros[odd]])
        shown = pc.replace_with_mask(shown, buffers.fixed(pa.bool_(), odd, None), distant)
    return shown if not values.null_count else pc.if_else(values.is_valid(), shown, _NO_TEXT)


def _digits(numbers: list[tuple[np.ndarray, int]], between: bytes, before: bytes, after: bytes) -> np.ndarray:
    width = len(before) + sum(size for _, size in numbers) + len(between) + len(after)
    texts = np.empty((len(numbers[0][0]), width), np.uint8)
    position = 0
    for byte in before:
        texts[:, position] = byte
        position += 1
    for index, (number, size) in enumerate(numbers):
        left = number.astype(np.int32)
        for place in range(size - 1, -1, -1):
            left, digit = np.divmod(left, 10)
            texts[:, position + place] = digit + 48
        position += size
        if index < len(between):
            texts[:, position] = between[index]
            position += 1
    texts[:, position:] = np.frombuffer(after, np.uint8)
    return texts


def _distant_time(micros: int, ending: str) -> str:
    """Return a time whose year has more than four digits or is negative, with the sign that Java prints."""
    shown = str(np.datetime64(micros // 1000, "ms"))
    sign = "" if shown.startswith("-") else "+"
    return f'"{sign}{shown}{ending}"'


def _one_by_one(values: pa.Array, shown: Callable[[Any], str]) -> pa.Array:
    return buffers.texts([None if value is None else shown(value) for value in values.to_pylist()])


def clock_time(nanos: int) -> str:
    """Return a time of day such as ``10:08:16.239``, without trailing zeros."""
    seconds, fraction = divmod(nanos, _NANOS)
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return shown + (f".{fraction:09d}".rstrip("0") if fraction else "")


def interval(value: Any, kind: Interval) -> str:
    """Return an ANSI interval such as ``INTERVAL '16-3' YEAR TO MONTH``. ``value`` is the Python value of Arrow's."""
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
    """Return ``16 years 1 months 17 days 4 hours 5 minutes 6.5 seconds``, without the parts that are zero."""
    parts = _unit_parts(value.months, (("years", 12), ("months", 1)))
    parts += [f"{value.days} days"] if value.days else []
    micros = value.nanoseconds // 1000
    sign, rest = (-1, -micros) if micros < 0 else (1, micros)
    hours, rest = divmod(rest, 3_600 * _MICROS)
    minutes, rest = divmod(rest, 60 * _MICROS)
    parts += [f"{sign * hours} hours"] if hours else []
    parts += [f"{sign * minutes} minutes"] if minutes else []
    if rest:
        seconds, fraction = divmod(rest, _MICROS)
        decimals = f".{fraction:06d}".rstrip("0") if fraction else ""
        parts.append(f"{'-' if sign < 0 else ''}{seconds}{decimals} seconds")
    return " ".join(parts) or "0 seconds"


def _unit_parts(total: int, units: tuple[tuple[str, int], ...]) -> list[str]:
    sign, rest = (-1, -total) if total < 0 else (1, total)
    found = []
    for name, size in units:
        count, rest = divmod(rest, size)
        if count:
            found.append(f"{sign * count} {name}")
    return found


_ATOMIC: dict[str, Callable[[pa.Array], pa.Array]] = {
    "variant": lambda values: values,
    "void": lambda values: pa.nulls(len(values), pa.string()),
    "string": _strings,
    "binary": lambda values: _one_by_one(values, lambda value: f'"{base64.b64encode(value).decode()}"'),
    "float": _floats,
    "double": _floats,
    "date": lambda values: _wrapped('"', values.cast(pa.string()), '"'),
    "timestamp": lambda values: _timestamps(values, b"Z"),
    "timestamp_ntz": lambda values: _timestamps(values, b""),
    "time": lambda values: _one_by_one(values.cast(pa.int64()), lambda nanos: _quote(clock_time(nanos))),
    "interval": lambda values: _one_by_one(values, lambda value: _quote(calendar_interval(value))),
}
