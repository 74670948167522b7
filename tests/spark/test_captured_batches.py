"""The rows of a query's batches, collected in the JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark.internals.captured_batches import CapturedBatches
from headwater.spark.writing import captured_rows

COLUMNS = {
    "text": "value",
    "null": "cast(null AS int)",
    "a.b": "length(value)",
    "big": "9007199254740993",
    "real": "cast(1.5 AS float)",
    "nan": "cast('NaN' AS double)",
    "price": "cast(12.30 AS decimal(10, 2))",
    "day": "date'2024-03-01'",
    "moment": "timestamp'2024-03-01 10:00:00.123456'",
    "local": "timestamp_ntz'2024-03-01 10:00:00'",
    "bytes": "cast(value AS binary)",
    "list": "array(1, null, 3)",
    "map": "map('k', named_struct('x', 1, 'y', null))",
    "pause": "interval '1 02:03:04' day to second",
}


def every_type(lines: DataFrame) -> DataFrame:
    return lines.select(*[F.expr(sql).alias(name) for name, sql in COLUMNS.items()])


def test_rows_are_those_of_to_json(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Every type is written as Spark's ``to_json`` writes it, nulls included, batch by batch."""
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "1.txt").write_text('ä\n"quoted"\n', encoding="utf-8")
    captured = CapturedBatches(headwater_spark)
    frame = every_type(headwater_spark.readStream.text(str(inbox)))
    writer = captured.capture(frame.writeStream.option("checkpointLocation", str(tmp_path / "ckpt")))
    query = writer.start()
    try:
        query.processAllAvailable()
        ((batch_id, rows),) = captured.take()
        assert batch_id == 0
        assert {row["text"] for row in rows} == {"ä", '"quoted"'}
        expected = captured_rows(every_type(headwater_spark.read.text(str(inbox))))
        assert sorted(map(str, rows)) == sorted(map(str, expected))
        assert captured.take() == []
    finally:
        query.stop()


def test_an_action_that_raises_fails_the_query(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Actions run before and after the rows are kept; the query ends with the error of one that raises."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\n", encoding="utf-8")
    captured, calls = CapturedBatches(headwater_spark), []

    def fail() -> None:
        raise RuntimeError("after the output")

    captured.surround(lambda: calls.append(captured.take()), fail)
    frame = headwater_spark.readStream.text(str(tmp_path / "in"))
    query = captured.capture(frame.writeStream.option("checkpointLocation", str(tmp_path / "ckpt"))).start()
    with pytest.raises(StreamingQueryException, match="after the output"):
        query.processAllAvailable()
    assert calls == [[]]
    assert captured.take() == [(0, [{"value": "a"}])]
