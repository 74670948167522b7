"""Visits that nobody should send, and what a job must make of each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

START = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)
HUGE_LINE_BYTES = 10 * 1024 * 1024
FAR_FUTURE_SHARE = 0.02
"""Of the records, at the end: one year 9999 moves the watermark there, and whatever follows it is late."""


@dataclass(frozen=True)
class Fuzzed:
    """``expected`` None: Spark may read it or not, but has to say which. ``has_time``: it falls into a window if it is read."""

    kind: str
    data: bytes | None
    expected: Literal["decoded", "malformed"] | None
    browser: str | None
    has_time: bool


def fuzzed_visits(seed: int, count: int, *, tombstones: bool, huge: int = 3) -> Iterator[Fuzzed]:
    """About two thirds of them are sound, so that sums mean something; ``huge`` lines of 10 MB are among them."""
    dice = random.Random(seed)
    far_future = int(count * (1 - FAR_FUTURE_SHARE))
    huge_ones = set(dice.sample(range(count), huge))
    for number in range(count):
        at = START + timedelta(seconds=number * 7200 // count - dice.randrange(300))
        fields = {
            "userId": dice.randrange(1000),
            "page": f"/{dice.randrange(50)}",
            "eventTime": f"{at:%Y-%m-%dT%H:%M:%S}.000Z",
            "browser": dice.choice(["Firefox", "Chrome", "Safari", "Lynx"]),
        }
        if number in huge_ones:
            yield _sound("10 MB line", {**fields, "page": "x" * HUGE_LINE_BYTES})
        elif dice.random() < 0.66:
            yield _sound("sound", fields)
        else:
            kinds = [*KINDS, *((_year_9999,) if number > far_future else ()), *((_no_value,) if tombstones else ())]
            yield dice.choice(kinds)(dice, fields)


def _sound(kind: str, fields: dict[str, Any], *, has_time: bool = True) -> Fuzzed:
    return Fuzzed(kind, json.dumps(fields).encode(), "decoded", fields.get("browser"), has_time)


def _bad(kind: str, data: bytes | str) -> Fuzzed:
    return Fuzzed(kind, data if isinstance(data, bytes) else data.encode(), "malformed", None, has_time=False)


def _unsure(kind: str, text: str, fields: dict[str, Any], *, has_time: bool = True) -> Fuzzed:
    return Fuzzed(kind, text.encode(), None, fields.get("browser"), has_time)


def _broken_utf8(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    data = json.dumps(fields).encode()
    at = dice.randrange(1, len(data) - 1)
    return _bad(
        "invalid UTF-8",
        data[:at] + dice.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]) + data[at:],
    )


def _random_bytes(dice: random.Random, _: dict[str, Any]) -> Fuzzed:
    data = bytes(byte for byte in dice.randbytes(dice.randrange(1, 200)) if byte not in b"\r\n")
    return _bad("random bytes", b"\xfe" + data)


def _cut_off(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    text = json.dumps(fields)
    return _bad("cut off", text[: dice.randrange(1, len(text) - 1)])


def _wrong_type(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    name, value = dice.choice(
        [
            ("userId", "x"),
            ("userId", [1]),
            ("userId", {"a": 1}),
            ("eventTime", "soon"),
            ("eventTime", [2]),
            ("userId", True),
        ]
    )
    return _bad("wrong type", json.dumps({**fields, name: value}))


def _huge_number(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    number = dice.choice(["9" * 400, "1e999", "-1e999", "2147483648", "-9223372036854775809", "1" + "0" * 5000])
    return _bad("huge number", json.dumps(fields).replace(f'"userId": {fields["userId"]}', f'"userId": {number}'))


def _deep(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    depth = dice.choice([50, 900, 2000, 20_000])
    text = json.dumps(fields)[:-1] + ', "more": ' + "[" * depth + "]" * depth + "}"
    return _unsure("deep nesting", text, fields)


def _deep_objects(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    depth = dice.choice([50, 900, 2000, 20_000])
    return _unsure(
        "deep nesting", json.dumps(fields)[:-1] + ', "more": ' + '{"a":' * depth + "1" + "}" * depth + "}", fields
    )


def _nulls(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    names = dice.sample(list(fields), dice.randrange(1, 5))
    held = {name: None if name in names else value for name, value in fields.items()}
    return _sound("nulls", held, has_time="eventTime" not in names)


def _missing(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    names = dice.sample(list(fields), dice.randrange(1, 4))
    held = {name: value for name, value in fields.items() if name not in names}
    return _sound("missing fields", held, has_time="eventTime" not in names)


def _not_an_object(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    text = json.dumps(fields)
    return _bad(
        "no object", dice.choice(["null", "true", "12", '"text"', "", "   ", "[]", "[1, 2]", text + text, f"{text} x"])
    )


def _year_1(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    return _sound("year 1", {**fields, "eventTime": dice.choice(["0001-01-01T00:00:00Z", "0001-06-01T10:00:00.000Z"])})


def _year_9999(_: random.Random, fields: dict[str, Any]) -> Fuzzed:
    return _sound("year 9999", {**fields, "eventTime": "9999-12-30T23:59:59.999Z"})


def _impossible_time(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    moment = dice.choice(["2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "999999999-01-01T00:00:00Z", "24:61", "-"])
    return _bad("impossible time", json.dumps({**fields, "eventTime": moment}))


def _strange_text(dice: random.Random, fields: dict[str, Any]) -> Fuzzed:
    name = dice.choice(
        ["\u0000nul", "\u2028line", "😀", "a" * 5000, "\ufeffmark", "quote\"'", "back\\slash", "тест", "\u202eright"]
    )
    return _sound("strange text", {**fields, "browser": name})


def _lone_surrogate(_: random.Random, fields: dict[str, Any]) -> Fuzzed:
    held = {**fields, "browser": "?"}  # what Java makes of half a character
    return _unsure("lone surrogate", json.dumps(fields).replace(f'"{fields["browser"]}"', '"\\ud800"'), held)


def _same_key_twice(_: random.Random, fields: dict[str, Any]) -> Fuzzed:
    return _unsure("key twice", json.dumps(fields)[:-1] + ', "page": "/again"}', fields)


def _byte_order_mark(_: random.Random, fields: dict[str, Any]) -> Fuzzed:
    return _unsure("byte order mark", "\ufeff" + json.dumps(fields), fields)


def _no_value(_: random.Random, __: dict[str, Any]) -> Fuzzed:
    return Fuzzed("no value", None, "malformed", None, has_time=False)


KINDS: tuple[Callable[[random.Random, dict[str, Any]], Fuzzed], ...] = (
    _broken_utf8,
    _random_bytes,
    _cut_off,
    _wrong_type,
    _huge_number,
    _deep,
    _deep_objects,
    _nulls,
    _missing,
    _not_an_object,
    _year_1,
    _impossible_time,
    _strange_text,
    _lone_surrogate,
    _same_key_twice,
    _byte_order_mark,
)
