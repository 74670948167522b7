"""Every source on real Spark."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater import Files, Job, Memory, Rate, Socket, Table
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.jobs.endpoints import Sink, Source
from headwater.spark.ownership import Run
from headwater.spark.prepared import prepare_job
from headwater.spark.runner import run_job

SCHEMA = "id INT, word STRING"
ROWS = [(1, "one"), (2, "two, three")]


def keep_all(rows: DataFrame) -> DataFrame:
    """The rows, unchanged."""
    return rows


def job_from(source: Source, sink: Sink, trigger: str | None = "available-now") -> Job:
    return Job("reader", keep_all, reads=source, writes=sink, trigger=trigger)


def write_files(spark: SparkSession, folder: Path, format_name: str) -> None:
    folder.mkdir(exist_ok=True)
    match format_name:
        case "csv":
            (folder / "a.csv").write_text('id,word\n1,one\nx,bad\n2,"two, three"\n3\n')
        case "json":
            (folder / "a.json").write_text('{"id":1,"word":"one"}\n{"id":"x"}\n{"id":2,"word":"two, three"}\n{"id"\n')
        case "text":
            (folder / "a.txt").write_bytes(b"one\n\xff\ntwo, three\n\xfe\n")
        case _:
            spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.format(format_name).mode("append").save(str(folder))


@pytest.mark.parametrize(
    ("format_name", "schema", "options", "malformed"),
    [
        ("csv", SCHEMA, {"header": "true"}, 2),
        ("json", SCHEMA, {}, 2),
        ("text", "word STRING", {}, 2),
        ("orc", SCHEMA, {}, 0),
        ("parquet", None, {}, 0),
    ],
)
def test_file_formats(
    headwater_spark: SparkSession,
    drain,
    tmp_path: Path,
    format_name: str,
    schema: str | None,
    options: dict[str, str],
    malformed: int,
) -> None:
    """The file source reads all five formats and counts malformed records."""
    write_files(headwater_spark, tmp_path / "in", format_name)
    source = Files(str(tmp_path / "in"), schema=schema, format=format_name, options=options)
    (batch,) = drain(job_from(source, Memory(f"read_{format_name}")))
    rows = headwater_spark.table(f"read_{format_name}").collect()
    words = [word for _, word in ROWS]
    expected = [(word,) for word in words] if format_name == "text" else ROWS
    assert sorted(map(tuple, rows)) == expected
    assert batch.malformed == malformed


def test_json_records_of_several_lines(headwater_spark: SparkSession, drain, tmp_path: Path) -> None:
    """With multiLine a file is one JSON value, and an invalid file is one malformed record."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{\n "id": 1,\n "word": "one"\n}\n')
    (tmp_path / "in" / "b.json").write_text('{\n "id": \n')
    source = Files(str(tmp_path / "in"), schema=SCHEMA, format="json", options={"multiLine": "true"})
    (batch,) = drain(job_from(source, Memory("several_lines")))
    assert [tuple(row) for row in headwater_spark.table("several_lines").collect()] == [(1, "one")]
    assert batch.malformed == 1


@pytest.mark.parametrize(("latest_first", "order"), [("false", [3, 1, 2]), ("true", [2, 1, 3])])
def test_files_are_read_by_age(drain, tmp_path: Path, latest_first: str, order: list[int]) -> None:
    """Files are read oldest first by modification time, whatever their names, or latest first if set."""
    (tmp_path / "in").mkdir()
    for age, (name, count) in enumerate([("c", 3), ("a", 1), ("b", 2)]):
        file = tmp_path / "in" / f"{name}.json"
        file.write_text("{}\n" * count)
        os.utime(file, (1_700_000_000 + age, 1_700_000_000 + age))
    options = {"maxFilesPerTrigger": "1", "latestFirst": latest_first}
    batches = drain(
        job_from(Files(str(tmp_path / "in"), schema=SCHEMA, options=options), Memory(f"age_{latest_first}"))
    )
    assert [batch.input_rows for batch in batches] == order


def test_table_as_source_and_sink(headwater_spark: SparkSession, drain, tmp_path: Path) -> None:
    """A table can be written and read again by a new process, in any format and database."""
    write_files(headwater_spark, tmp_path / "in", "json")
    source = Files(str(tmp_path / "in"), schema=SCHEMA)
    for name, format_name in [("plain_table", None), ("shelf.json_table", "json")]:
        drain(job_from(source, Table(name, format=format_name)), tmp_path / f"into_{name}")
        headwater_spark.sql(f"DROP TABLE {name}")  # as in a new process
        (batch,) = drain(job_from(Table(name), Memory(f"from_{format_name}")), tmp_path / f"from_{name}")
        assert sorted(map(tuple, headwater_spark.table(f"from_{format_name}").collect())) == ROWS
        assert batch.malformed == 0
        (tmp_path / "in" / "more.json").write_text('{"id":3,"word":"later"}\n')
        drain(job_from(source, Table(name)), tmp_path / f"into_{name}")
        assert headwater_spark.table(name).count() == 3
        (tmp_path / "in" / "more.json").unlink()


def test_a_missing_table(headwater_spark: SparkSession) -> None:
    """A missing table is refused with the location of the warehouse."""
    with pytest.raises(ServiceUnreachable) as refused:
        prepare_job(headwater_spark, job_from(Table("nowhere"), Memory("x")))
    assert refused.value.code == "no-table"


def test_parquet_without_schema_or_files(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A source without a schema is refused if there are no files to infer it from."""
    with pytest.raises(JobRefused) as refused:
        prepare_job(headwater_spark, job_from(Files(str(tmp_path), format="parquet"), Memory("x")))
    assert "schema" in str(refused.value)


@contextmanager
def lines_on_a_socket(*lines: str) -> Iterator[int]:
    """Run a server that sends the lines to its first client and then stays connected."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        clients: list[socket.socket] = []

        def serve() -> None:
            client, _ = server.accept()
            clients.append(client)
            client.sendall("".join(f"{line}\n" for line in lines).encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join()
        for client in clients:
            client.close()


def run_until(spark: SparkSession, job: Job, checkpoint: Path, rows: int) -> list[ProgressRecord]:
    """Run an endless job until it has read this many rows, then stop it."""
    stop, batches = threading.Event(), list[ProgressRecord]()

    def on_batch(batch: ProgressRecord) -> None:
        batches.append(batch)
        if sum(done.input_rows for done in batches) >= rows:
            stop.set()

    run_job(spark, Run(job, "test", str(checkpoint)), stop=stop, on_batch=on_batch)
    return batches


def test_socket_lines(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Lines from a socket are decoded like those of other sources, as text or with a schema."""
    with lines_on_a_socket("hello", "", "world") as port:
        run_until(headwater_spark, job_from(Socket(port=port), Memory("lines"), None), tmp_path / "text", 3)
    assert sorted(row.value for row in headwater_spark.table("lines").collect()) == ["", "hello", "world"]
    with lines_on_a_socket("1,one", "x", '2,"two, three"') as port:
        source = Socket(port=port, schema=SCHEMA, format="csv")
        batches = run_until(headwater_spark, job_from(source, Memory("csv_lines"), None), tmp_path / "csv", 3)
    assert sorted(map(tuple, headwater_spark.table("csv_lines").collect())) == ROWS
    assert sum(batch.malformed for batch in batches) == 1


def test_socket_without_a_server(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A socket on which no server listens is reported as such."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ServiceUnreachable) as refused:
        run_until(headwater_spark, job_from(Socket(port=port), Memory("silence"), None), tmp_path / "checkpoint", 1)
    assert refused.value.code == "socket-unreachable"


def test_rate(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The rate source emits Spark's rows, and its job finishes the current batch before it stops."""
    job = job_from(Rate(50, {"numPartitions": "1"}), Memory("ticks"), None)
    batches = run_until(headwater_spark, job, tmp_path / "checkpoint", 20)
    values = [row.value for row in headwater_spark.table("ticks").orderBy("value").collect()]
    assert values == list(range(sum(batch.input_rows for batch in batches)))
    planned = {file.name for file in (tmp_path / "checkpoint" / "offsets").iterdir() if file.name.isdigit()}
    committed = {file.name for file in (tmp_path / "checkpoint" / "commits").iterdir() if file.name.isdigit()}
    assert planned == committed


def test_a_source_used_twice(headwater_spark: SparkSession, drain, tmp_path: Path) -> None:
    """A job may read its source in two branches."""
    write_files(headwater_spark, tmp_path / "in", "json")
    job = job_from(Files(str(tmp_path / "in"), schema=SCHEMA), Memory("both"))
    drain(replace(job, transform=lambda rows: rows.where("id = 1").union(rows.where("id = 2"))))
    assert sorted(map(tuple, headwater_spark.table("both").collect())) == ROWS
