"""Sinks that need no server, for streams and for per-batch jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Files, Job, Memory, Table

SCHEMA = "id INT, word STRING"


def shout(rows: DataFrame) -> DataFrame:
    """The words in upper case."""
    return rows.select("id", F.upper("word").alias("word"))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "in").mkdir()
    for number, word in enumerate(["one", "two", "three"]):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"id": number, "word": word}) + "\nbad\n")
    source = Files(str(tmp_path / "in"), schema=SCHEMA, options={"maxFilesPerTrigger": "1"})
    return Job("writer", shout, reads=source, writes=Memory("unused"), trigger="available-now")


EXPECTED = [(0, "ONE"), (1, "TWO"), (2, "THREE")]


@pytest.mark.parametrize(
    ("format_name", "per_batch"),
    [
        *((None, False), ("json", True), ("csv", False), ("orc", True)),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((None, True), ("json", False), ("csv", True), ("orc", False))
        ),
    ],
)
def test_files(
    headwater_spark: SparkSession, drain, tmp_path: Path, job: Job, format_name: str | None, per_batch: bool
) -> None:
    """A file sink has every row once, in the chosen format or parquet."""
    out = tmp_path / "out"
    drain(replace(job, writes=Files(str(out), format=format_name), per_batch=per_batch))
    rows = headwater_spark.read.format(format_name or "parquet").schema(SCHEMA).load(str(out)).collect()
    assert sorted(map(tuple, rows)) == EXPECTED
    assert (out / "_spark_metadata").exists() is not per_batch


@pytest.mark.parametrize("per_batch", [False, True])
def test_memory_and_table(headwater_spark: SparkSession, drain, tmp_path: Path, job: Job, per_batch: bool) -> None:
    """A memory table and a catalog table have every row once; a per-batch job may run in update mode."""
    mode = "update" if per_batch else "append"
    for sink in (Memory(f"memory_{per_batch}"), Table(f"table_{per_batch}")):
        batches = drain(replace(job, writes=sink, per_batch=per_batch, mode=mode), tmp_path / f"ck_{sink.kind}")
        assert sorted(map(tuple, headwater_spark.table(sink.name).collect())) == EXPECTED
        assert [(batch.input_rows, batch.malformed) for batch in batches] == [(2, 1)] * 3
