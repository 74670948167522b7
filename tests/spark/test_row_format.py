"""Rows of custom state as bytes, between Python workers and the state server."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructType

from headwater.spark.internals.workers.row_format import RowFormat

pickles = CPickleSerializer()
EXACT, PICKLED = 1, 0
DAY, TIME = datetime.date(2024, 2, 29), datetime.datetime.fromisoformat("2024-02-29T01:02:03.000004")


def row_format(schema: StructType) -> RowFormat:
    return RowFormat(schema, lambda _, row: pickles.dumps(tuple(row)), pickles.loads)


KINDS = {
    "long": spark_types.LongType(),
    "int": spark_types.IntegerType(),
    "text": spark_types.StringType(),
    "double": spark_types.DoubleType(),
    "bool": spark_types.BooleanType(),
    "binary": spark_types.BinaryType(),
    "date": spark_types.DateType(),
    "timestamp": spark_types.TimestampType(),
}


def schema_of(*names: str) -> StructType:
    return StructType([spark_types.StructField(f"f{at}", KINDS[name]) for at, name in enumerate(names)])


@pytest.mark.parametrize(
    ("types", "row", "first"),
    [
        (["long"], (5,), EXACT),
        (["text"], ("é",), EXACT),
        (["text"], ("",), EXACT),
        (["long", "text", "bool", "double"], (-1, "x", True, 0.5), EXACT),
        (["long", "int"], (1, 2), EXACT),
        (["long", "text"], (None, None), EXACT),
        (["text"], (None,), EXACT),
        (
            ["date", "timestamp"],
            (DAY, TIME),
            EXACT,
        ),
        (["long"], (2**63,), PICKLED),
        (["int"], (2**31,), PICKLED),
        (["long"], (True,), PICKLED),
        (["double"], (1,), PICKLED),
        (["long"], (1, 2), PICKLED),
        (["binary"], (b"x",), PICKLED),
    ],
)
def test_a_row_is_read_as_it_was_written(types: list[str], row: tuple[Any, ...], first: int) -> None:
    """Rows keep their values and types; what Spark would convert is left to Spark."""
    rows = row_format(schema_of(*types))
    data = rows.encode(row)
    assert data[0] == first
    assert rows.decode(data) == row
    assert list(map(type, rows.decode(data))) == list(map(type, row))


def test_equal_bytes_are_equal_for_spark() -> None:
    """Keys with floating-point numbers or pickled values are not compared by their bytes."""
    assert row_format(schema_of("text", "long", "date")).keeps_equality
    assert not row_format(schema_of("text", "double")).keeps_equality
    assert not row_format(schema_of("binary")).keeps_equality
