"""A declarative pipeline on real Spark: run, rewound, undone, rewound and run again, beside one that ran undisturbed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from broker_support import free_port, run_here
from headwater.core.times import iso_from_ms
from headwater.jars.resolve import jar_paths
from headwater.spark.table_formats import DELTA_CATALOG, DELTA_EXTENSION, EXTENSIONS, SESSION_CATALOG
from pipelines.trees import STREAMING, rows_of
from waiting_support import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(3600)]

FLOWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()


@dp.table
def sales():
    return spark.readStream.schema("id INT, at TIMESTAMP, amount INT").json("{inbox}")


@dp.table
def big_sales():
    return spark.readStream.table("sales").where("amount >= 50")


@dp.materialized_view
def summary():
    return spark.read.table("big_sales").groupBy().agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
"""
# In Python, withWatermark on a table of the same pipeline fails: Spark resolves it before the table exists.
TOTALS = """
CREATE STREAMING TABLE totals AS
SELECT window.start AS start, sum(amount) AS total, count(*) AS n
FROM STREAM sales WATERMARK at DELAY OF INTERVAL 10 MINUTES
GROUP BY window(at, '10 minutes');
"""
SPEC = """
name: {name}
storage: file://{home}/storage
catalog: spark_catalog
database: {name}
configuration:
  spark.sql.sources.default: {format}
libraries:
  - glob:
      include: transformations/**
"""
DAY = "2026-07-01T"
FIRST = [(1, "10:00", 10), (2, "10:05", 60), (3, "10:25", 70)]
WRONG = [(4, "10:35", 9000), (5, "10:50", 55)]
RIGHT = [(4, "10:35", 90), (5, "10:50", 55)]
THIRD = [(6, "11:10", 80), (7, "11:30", 20)]


@dataclass
class Server:
    """A Spark Connect server on loopback. Its catalog lasts as long as it runs, as that of a cluster would."""

    url: str
    warehouse: Path

    def python(self, *arguments: object) -> None:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, "SPARK_REMOTE": self.url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    settings = {
        EXTENSIONS: DELTA_EXTENSION,
        SESSION_CATALOG: DELTA_CATALOG,
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    options = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                str(Path(pyspark.__file__).parent / "bin/spark-submit"),
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
                *("--jars", ",".join(map(str, jar_paths("delta")))),
                *options,
                "spark-internal",
            ],
            cwd=folder,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def is_up() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    try:
        wait_until(is_up, "Spark Connect to listen")
        yield Server(f"sc://127.0.0.1:{port}", folder / "warehouse")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Pipeline:
    """A pipeline of three flows and a materialized view, with a database of its own."""

    def __init__(self, server: Server, home: Path, name: str, table_format: str) -> None:
        self.server, self.home, self.name = server, home, name
        self.inbox = home / "in"
        self.inbox.mkdir(parents=True)
        (home / "transformations").mkdir()
        (home / "transformations/flows.py").write_text(FLOWS.format(inbox=self.inbox))
        (home / "transformations/totals.sql").write_text(TOTALS)
        self.spec = home / "spark-pipeline.yml"
        self.spec.write_text(SPEC.format(name=name, home=home, format=table_format))
        create = f"from pyspark.sql import SparkSession as S; S.builder.getOrCreate().sql('CREATE DATABASE {name}')"
        server.python("-c", create)

    def feed(self, file: str, rows: list[tuple[int, str, int]]) -> None:
        lines = [f'{{"id":{number},"at":"{DAY}{at}:00Z","amount":{amount}}}' for number, at, amount in rows]
        (self.home / file).write_text("\n".join(lines))
        (self.home / file).rename(self.inbox / file)

    def run(self) -> None:
        self.server.python("-m", "pyspark.pipelines.cli", "run", "--spec", self.spec)

    @property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        folder = self.server.warehouse / f"{self.name}.db"
        return {table: rows_of(folder / table) for table in (*STREAMING, "summary")}

    def headwater(self, *arguments: object) -> str:
        warehouse = {"HEADWATER_WAREHOUSE": str(self.server.warehouse)}
        done = run_here(*arguments, env=warehouse)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_a_rewound_pipeline_ends_with_the_tables_of_an_uninterrupted_one(
    server: Server, tmp_path: Path, table_format: str
) -> None:
    """The second input file was wrong: the pipeline returns to the time before it, and runs with the right one."""
    changed = Pipeline(server, tmp_path / "changed", f"changed_{table_format}", table_format)
    control = Pipeline(server, tmp_path / "control", f"control_{table_format}", table_format)
    changed.feed("a.json", FIRST)
    changed.run()
    after_first, moment = changed.rows, iso_from_ms(time.time_ns() // 1_000_000)
    for file, rows in (("b.json", WRONG), ("c.json", THIRD)):  # two runs: each also commits to the tables' properties
        changed.feed(file, rows)
        changed.run()
    before = changed.rows

    changed.headwater("rewind", changed.spec, "--to-time", moment, "--yes")
    assert {table: changed.rows[table] for table in STREAMING} == {table: after_first[table] for table in STREAMING}
    changed.headwater("fsck", changed.spec)
    changed.headwater("undo", changed.spec, "--yes")
    assert changed.rows == before
    changed.headwater("rewind", changed.spec, "--to-time", moment, "--yes")
    changed.feed("b.json", RIGHT)
    changed.run()

    control.feed("a.json", FIRST)
    control.run()
    control.feed("b.json", RIGHT)
    control.run()
    control.feed("c.json", THIRD)
    control.run()
    assert changed.rows == control.rows
    assert changed.rows != before
    changed.headwater("fsck", changed.spec)

    changed.headwater("rewind", changed.spec, "--to-time", "2020-01-01T00:00:00Z", "--yes")
    changed.run()
    assert changed.rows == control.rows
