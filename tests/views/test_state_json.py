"""State as JSON text."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headwater.statefiles.sqltypes import Array, Atomic, Interval, Map, SqlType, Struct, arrow_type, parse_type
from headwater.views.state_json import calendar_interval, clock_time, interval, json_texts


def texts(kind: SqlType, values: list[object]) -> list[str]:
    found: list[str] = json_texts(kind, pa.array(values, arrow_type(kind))).to_pylist()
    return found


def test_strings_are_escaped() -> None:
    """Quotes, backslashes and control characters survive a round trip through JSON."""
    strings = ['say "no"', "back\\slash", "line\nbreak", "\x01", "ünïcödé 🎉", "", None]
    assert [json.loads(text) for text in texts(Atomic("string"), strings)] == strings


def test_numbers_that_json_lacks() -> None:
    """NaN and the infinities are strings, as Spark writes them; integral doubles keep their decimal point."""
    assert texts(Atomic("double"), [float("nan"), float("inf"), -float("inf"), 1.0, 1e300, None]) == [
        '"NaN"',
        '"Infinity"',
        '"-Infinity"',
        "1.0",
        "1E300",
        "null",
    ]


def test_timestamps_have_milliseconds_and_a_zone() -> None:
    """Microseconds are truncated, also before 1970, and years have four digits."""
    times = [
        datetime(2024, 5, 1, 10, 0, 0, 123_999, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        None,
    ]
    assert texts(Atomic("timestamp"), times) == [
        '"2024-05-01T10:00:00.123Z"',
        '"1969-12-31T23:59:59.999Z"',
        '"0001-01-01T00:00:00.000Z"',
        "null",
    ]


def test_distant_years_have_a_sign() -> None:
    """A year with five digits has a plus sign, as Java prints it."""
    held = pa.array([400_000_000_000_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert json_texts(Atomic("timestamp"), held).to_pylist() == ['"+14645-06-30T15:06:40.000Z"']


def test_nested_values() -> None:
    """Structs, lists and maps nest, and a null inside is null."""
    kind = parse_type(
        {
            "type": "struct",
            "fields": [
                {"name": "a", "type": {"type": "array", "elementType": "long"}},
                {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "integer"}},
            ],
        }
    )
    assert isinstance(kind, Struct)
    values = [{"a": [1, None], "m": [("x", 1), ("y", None)]}, {"a": None, "m": []}, None]
    assert texts(kind, values) == ['{"a":[1,null],"m":{"x":1,"y":null}}', '{"a":null,"m":{}}', "null"]


def test_slices_of_nested_values() -> None:
    """A slice of an array gives the texts of that slice."""
    kind = Array(Map(Atomic("string"), Array(Atomic("long"))))
    array = pa.array([[[("a", [1])]], [], [[("b", [2, 3])], None], None], arrow_type(kind))
    assert json_texts(kind, array.slice(1, 3)).to_pylist() == ["[]", '[{"b":[2,3]},null]', "null"]


@pytest.mark.parametrize(
    ("units", "micros", "shown"),
    [
        ("day to second", 93_784_000_005, "INTERVAL '1 02:03:04.000005' DAY TO SECOND"),
        ("day to second", -500_000, "INTERVAL '-0 00:00:00.5' DAY TO SECOND"),
        ("hour to minute", 3_660_000_000, "INTERVAL '1:01' HOUR TO MINUTE"),
        ("second", 61_000_000, "INTERVAL '61' SECOND"),
    ],
)
def test_day_time_intervals(units: str, micros: int, shown: str) -> None:
    """Day-time intervals are shown as Spark prints them."""
    kind = Interval(months=False, units=units)
    assert interval(pa.scalar(micros, pa.duration("us")).as_py(), kind) == shown


def test_other_intervals_and_times() -> None:
    """Year-month intervals, calendar intervals and times of day are shown as Spark prints them."""
    months = pa.scalar((-11, 0, 0), pa.month_day_nano_interval()).as_py()
    assert interval(months, Interval(months=True, units="year to month")) == "INTERVAL '-0-11' YEAR TO MONTH"
    mixed = pa.scalar((14, -3, -1_500_000_000), pa.month_day_nano_interval()).as_py()
    assert calendar_interval(mixed) == "1 years 2 months -3 days -1.5 seconds"
    assert calendar_interval(pa.scalar((0, 0, 0), pa.month_day_nano_interval()).as_py()) == "0 seconds"
    assert clock_time(36_496_239_000_000) == "10:08:16.239"
