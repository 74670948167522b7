"""Generated visits, a third of them malformed or unusual, and how a job must treat each."""

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
"""The last share of the records may be in the year 9999, which moves the watermark there and makes later records late."""


@dataclass(frozen=True)
class Fuzzed:
    """One record. ``expected`` is None if Spark may decode it or not; ``has_time`` if it falls into a window when decoded."""

    kind: str
    data: bytes | None
    expected: Literal["decoded", "malformed"] | None
    browser: str | None
    has_time: bool


def fuzzed_visits(seed: int, count: int, *, tombstones: bool, huge: int = 3) -> Iterator[Fuzzed]:
    """Generate visits: about two thirds are valid, ``huge`` of them with 10 MB, and the rest malformed or unusual."""
    rng = random.Random(seed)
    far_future = int(count * (1 - FAR_FUTURE_SHARE))
    huge_numbers = set(rng.sample(range(count), huge))
    for number in range(count):
        at = START + timedelta(seconds=number * 7200 // count - rng.randrange(300))
        fields = {
            "userId": rng.randrange(1000),
            "page": f"/{rng.randrange(50)}",
            "eventTime": f"{at:%Y-%m-%dT%H:%M:%S}.000Z",
            "browser": rng.choice(["Firefox", "Chrome", "Safari", "Lynx"]),
        }
        if number in huge_numbers:
            yield _valid("10 MB line", {**fields, "page": "x" * HUGE_LINE_BYTES})
        elif rng.random() < 0.66:
            yield _valid("valid", fields)
        else:
            kinds = [*KINDS, *((_year_9999,) if number > far_future else ()), *((_no_value,) if tombstones else ())]
            yield rng.choice(kinds)(rng, fields)


def _valid(kind: str, fields: dict[str, Any], *, has_time: bool = True) -> Fuzzed:
    return Fuzzed(kind, json.dumps(fields).encode(), "decoded", fields.get("browser"), has_time)


def _malformed(kind: str, data: bytes | str) -> Fuzzed:
    return Fuzzed(kind, data if isinstance(data, bytes) else data.encode(), "malformed", None, has_time=False)


def _either(kind: str, text: str, fields: dict[str, Any], *, has_time: bool = True) -> Fuzzed:
    return Fuzzed(kind, text.encode(), None, fields.get("browser"), has_time)


def _invalid_utf8(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    data = json.dumps(fields).encode()
    at = rng.randrange(1, len(data) - 1)
    return _malformed(
        "invalid UTF-8",
        data[:at] + rng.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]) + data[at:],
    )


def _random_bytes(rng: random.Random, _: dict[str, Any]) -> Fuzzed:
    data = bytes(byte for byte in rng.randbytes(rng.randrange(1, 200)) if byte not in b"\r\n")
    return _malformed("random bytes", b"\xfe" + data)


def _truncated(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    text = json.dumps(fields)
    return _malformed("truncated", text[: rng.randrange(1, len(text) - 1)])


def _wrong_type(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    name, value = rng.choice(
        [
            ("userId", "x"),
            ("userId", [1]),
            ("userId", {"a": 1}),
            ("eventTime", "soon"),
            ("eventTime", [2]),
            ("userId", True),
        ]
    )
    return _malformed("wrong type", json.dumps({**fields, name: value}))


def _huge_number(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    number = rng.choice(["9" * 400, "1e999", "-1e999", "2147483648", "-9223372036854775809", "1" + "0" * 5000])
    return _malformed("huge number", json.dumps(fields).replace(f'"userId": {fields["userId"]}', f'"userId": {number}'))


def _deep(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    depth = rng.choice([50, 900, 2000, 20_000])
    text = json.dumps(fields)[:-1] + ', "more": ' + "[" * depth + "]" * depth + "}"
    return _either("deep nesting", text, fields)


def _deep_objects(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    depth = rng.choice([50, 900, 2000, 20_000])
    return _either(
        "deep nesting", json.dumps(fields)[:-1] + ', "more": ' + '{"a":' * depth + "1" + "}" * depth + "}", fields
    )


def _nulls(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    names = rng.sample(list(fields), rng.randrange(1, 5))
    changed = {name: None if name in names else value for name, value in fields.items()}
    return _valid("nulls", changed, has_time="eventTime" not in names)


def _missing(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    names = rng.sample(list(fields), rng.randrange(1, 4))
    changed = {name: value for name, value in fields.items() if name not in names}
    return _valid("missing fields", changed, has_time="eventTime" not in names)


def _not_an_object(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    text = json.dumps(fields)
    return _malformed(
        "not an object",
        rng.choice(["null", "true", "12", '"text"', "", "   ", "[]", "[1, 2]", text + text, f"{text} x"]),
    )


def _year_1(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    return _valid("year 1", {**fields, "eventTime": rng.choice(["0001-01-01T00:00:00Z", "0001-06-01T10:00:00.000Z"])})


def _year_9999(_: random.Random, fields: dict[str, Any]) -> Fuzzed:
    return _valid("year 9999", {**fields, "eventTime": "9999-12-30T23:59:59.999Z"})


def _impossible_time(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    moment = rng.choice(["2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "999999999-01-01T00:00:00Z", "24:61", "-"])
    return _malformed("impossible time", json.dumps({**fields, "eventTime": moment}))


def _unusual_text(rng: random.Random, fields: dict[str, Any]) -> Fuzzed:
    name = rng.choice(
        ["\u0000nul", "\u2028line", "😀", "a" * 5000, "\ufeffmark", "quote\"'", "back\\slash", "тест", "\u202eright"]
    )
    return _valid("unusual text", {**fields, "browser": name})


def _lone_surrogate(_: random.Random, fields: dict[str, Any]) -> Fuzzed:
    changed = {**fields, "browser": "?"}  # Java's replacement for half a surrogate pair
    return _either("lone surrogate", json.dumps(fields).replace(f'"{fields["browser"]}"', '"\\ud800"'), changed)


def _duplicate_key(_: random.Random, fields: dict[str, Any]) -> Fuzzed:
    return _either("duplicate key", json.dumps(fields)[:-1] + ', "page": "/again"}', fields)


def _byte_order_mark(_: random.Random, fields: dict[str, Any]) -> Fuzzed:
    return _either("byte order mark", "\ufeff" + json.dumps(fields), fields)


def _no_value(_: random.Random, __: dict[str, Any]) -> Fuzzed:
    return Fuzzed("no value", None, "malformed", None, has_time=False)


KINDS: tuple[Callable[[random.Random, dict[str, Any]], Fuzzed], ...] = (
    _invalid_utf8,
    _random_bytes,
    _truncated,
    _wrong_type,
    _huge_number,
    _deep,
    _deep_objects,
    _nulls,
    _missing,
    _not_an_object,
    _year_1,
    _impossible_time,
    _unusual_text,
    _lone_surrogate,
    _duplicate_key,
    _byte_order_mark,
)
