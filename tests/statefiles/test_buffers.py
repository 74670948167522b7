"""Arrow values as Python values."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from headwater.statefiles.buffers import python_rows


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
