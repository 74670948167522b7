"""UnsafeRow to Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.statefiles.buffers import ByteSpace
from headwater.statefiles.sqltypes import Array, Atomic, Map, Struct, TypeUnknown, distinct, parse_type
from headwater.statefiles.unsaferow import decode_rows
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
    found: list[dict[str, Any]] = decode_rows(kind, ByteSpace(data), np.array(starts, np.int64)).to_pylist()
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, max_size=6))
def test_rows_come_back(values: list[Any]) -> None:
    """Every value of every kind comes back as it was written, at any byte position."""
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
    """The null bits of the 65th field and on stand in a second word."""
    kind = struct_type(**{f"f{number}": LONG for number in range(70)})
    values = [None if number % 3 else number for number in range(70)]
    (row,) = decoded(kind, [values])
    assert list(row.values()) == values


def test_a_field_that_points_outside_is_refused() -> None:
    """Bytes that are no row raise, and do not read from somewhere else."""
    row = bytearray(unsafe_row(struct_type(word=TEXT), ["hello"]))
    row[8:16] = (2**40).to_bytes(8, "little")
    with pytest.raises(ValueError, match="outside"):
        decode_rows(struct_type(word=TEXT), ByteSpace(bytes(row)), np.array([0]))


def test_names_that_repeat_get_a_suffix() -> None:
    """Arrow structs can name each of their fields."""
    assert distinct(["sum", "count", "SUM", "sum_2"]) == ["sum", "count", "SUM_2", "sum_2_2"]


@pytest.mark.parametrize("name", ["geometry(4326)", "hyperloglog"])
def test_unknown_types_are_refused(name: str) -> None:
    """A type without known bytes is refused by its name."""
    with pytest.raises(TypeUnknown, match=name.partition("(")[0]):
        parse_type(name)
