"""Decoding of UnsafeRow to Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.statefiles.buffers import ByteSpace
from headwater.statefiles.rowcodec import UnsafeRows
from headwater.statefiles.sqltypes import Array, Atomic, Map, Struct, UnknownType, distinct, parse_type
from statefiles.encoding import FLAG, INT, LONG, REAL, TEXT, struct_type, unsafe_row

NESTED = struct_type(at=LONG, note=TEXT)
ROW = struct_type(
    number=LONG,
    word=TEXT,
    flag=FLAG,
    small=INT,
    real=REAL,
    nested=NESTED,
    numbers=Array(INT),
    words=Array(TEXT),
    records=Array(NESTED),
    counts=Map(TEXT, LONG),
    tiny=Array(Atomic("byte")),
)

longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
texts = st.text(max_size=30)
nested = st.tuples(st.none() | longs, st.none() | texts)
rows = st.tuples(
    st.none() | longs,
    st.none() | texts,
    st.none() | st.booleans(),
    st.none() | ints,
    st.none() | st.floats(allow_nan=False),
    st.none() | nested,
    st.none() | st.lists(st.none() | ints, max_size=70),
    st.none() | st.lists(st.none() | texts, max_size=5),
    st.none() | st.lists(st.none() | nested, max_size=4),
    st.none() | st.dictionaries(texts, st.none() | longs, max_size=4),
    st.none() | st.lists(st.none() | st.integers(-128, 127), max_size=20),
)


def decoded(kind: Struct, values: list[Any]) -> list[dict[str, Any]]:
    data, starts = b"\x07", []
    for value in values:
        starts.append(len(data))
        data += unsafe_row(kind, value) + b"\x07"
    return decode(kind, data, starts)


def decode(kind: Struct, data: bytes, starts: list[int]) -> list[dict[str, Any]]:
    at = np.array(starts, np.int64)
    rows: list[dict[str, Any]] = UnsafeRows(version_byte=False).rows(kind, ByteSpace(data), at, at).to_pylist()
    return rows


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, max_size=6))
def test_rows_round_trip(values: list[Any]) -> None:
    """Values of every type are decoded as they were encoded, at any byte position."""
    expected = [
        {
            **dict(zip(ROW.names, row, strict=True)),
            "nested": row[5] and dict(zip(NESTED.names, row[5], strict=True)),
            "records": None
            if row[8] is None
            else [record and dict(zip(NESTED.names, record, strict=True)) for record in row[8]],
            "counts": None if row[9] is None else list(row[9].items()),
        }
        for row in values
    ]
    assert decoded(ROW, values) == expected


def test_more_than_64_fields() -> None:
    """The null bits from the 65th field on are in a second word."""
    kind = struct_type(**{f"f{number}": LONG for number in range(70)})
    values = [None if number % 3 else number for number in range(70)]
    (row,) = decoded(kind, [values])
    assert list(row.values()) == values


def test_a_field_that_points_outside_is_refused() -> None:
    """A field that points outside its row raises an error instead of reading other bytes."""
    row = bytearray(unsafe_row(struct_type(word=TEXT), ["hello"]))
    row[8:16] = (2**40).to_bytes(8, "little")
    with pytest.raises(ValueError, match="outside"):
        decode(struct_type(word=TEXT), bytes(row), [0])


def test_duplicate_names_get_a_suffix() -> None:
    """Duplicate names get a suffix, so that every field of an Arrow struct can be addressed."""
    assert distinct(["sum", "count", "SUM", "sum_2"]) == ["sum", "count", "SUM_2", "sum_2_2"]


@pytest.mark.parametrize("name", ["geometry(4326)", "hyperloglog"])
def test_unknown_types_are_refused(name: str) -> None:
    """A type without a known encoding is refused by name."""
    with pytest.raises(UnknownType, match=name.partition("(")[0]):
        parse_type(name)
