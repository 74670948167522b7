"""Arrow values as Python values."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest

from headwater.statefiles.buffers import ByteSpace, binary, python_rows


def test_rows_end_with_zeros_after_the_end_of_the_buffer() -> None:
    """Rows of any width can begin anywhere in a buffer, but not outside it."""
    data = bytes(range(1, 51))
    space = ByteSpace(data)
    for width in (1, 8, 40, 300):
        starts = np.array([0, 7, 49, 50])
        expected = [(data[start:] + bytes(width))[:width] for start in starts]
        assert [row.tobytes() for row in space.rows(starts, width)] == expected
        assert space.rows(np.zeros(0, np.int64), width).shape == (0, width)
    with pytest.raises(IndexError, match="position 51 of 50 bytes"):
        space.rows(np.array([51]), 300)


@pytest.mark.parametrize(
    "words", [["a"], ["abc", "xyz"], ["é" * 6] * 3, ["y" * 200] * 2, ["", ""], ["a", "", "z" * 99]]
)
def test_texts_are_cut_out_of_a_buffer(words: list[str]) -> None:
    """Texts of one length or of different ones, and nulls between them, are those that are stored."""
    lengths = [len(word.encode()) for word in words]
    starts = np.cumsum([3, *lengths])[:-1]
    space = ByteSpace(b"---" + "".join(words).encode())
    assert binary(pa.string(), space, starts, np.array(lengths), None).to_pylist() == words
    valid = np.arange(len(words)) > 0
    expected = [None, *words[1:]]
    assert binary(pa.string(), space, starts * valid, np.array(lengths) * valid, valid).to_pylist() == expected


def test_rows_are_those_of_arrow() -> None:
    """Times keep their zone at any depth, and all other values are those of ``to_pylist``."""
    at = pa.timestamp("us", tz="UTC")
    time = datetime(2024, 5, 1, 10, 0, 0, 123456, tzinfo=UTC)
    table = pa.table(
        {
            "at": pa.array([time, None], at),
            "local": pa.array([time.replace(tzinfo=None), None], pa.timestamp("us")),
            "window": pa.array([{"start": time, "n": 1}, None], pa.struct({"start": at, "n": pa.int64()})),
            "all": pa.array([[time, None], []], pa.list_(at)),
            "by": pa.array([[("a", time)], None], pa.map_(pa.string(), at)),
            "text": ["ünï", None],
        }
    )
    assert python_rows(table) == table.to_pylist()
    assert python_rows(table.select(["text"])) == [{"text": "ünï"}, {"text": None}]
    assert python_rows(table)[0]["window"]["start"].tzinfo is UTC


def test_python_rows_have_times_beyond_the_years_of_python() -> None:
    """Spark has years up to 294247, which become text; all other values are those of Arrow."""
    kind = pa.struct([("at", pa.timestamp("us", "UTC")), ("days", pa.list_(pa.date32()))])
    plain = {"at": datetime(2026, 7, 1, 10, 0, 0, 5, tzinfo=UTC), "days": [date(1969, 12, 31), None]}
    distant = pa.array(
        [{"at": 253_402_300_800_000_000, "days": [4_000_000]}],
        pa.struct([("at", pa.int64()), ("days", pa.list_(pa.int32()))]),
    )
    table = pa.table({"row": pa.concat_arrays([pa.array([plain, None], kind), distant.cast(kind)])})
    assert python_rows(table) == [
        {"row": plain},
        {"row": None},
        {"row": {"at": "10000-01-01T00:00:00.000000", "days": ["12921-08-18"]}},
    ]
