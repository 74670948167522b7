"""Programs under spark-submit: without any line of Headwater, and with the package as a zip file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from attached.test_programs import PROGRAMS, folder, output
from broker_support import headwater as headwater_command
from cli.running import Command
from headwater.checkpoint.lease import live_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import read_job_record, read_progress
from spark_cluster_support import SPARK_HOME, Cluster

__all__ = ["folder"]

pytestmark = pytest.mark.services

STARTS = """
import headwater
from sized_orders import SIZED

assert ".zip" in headwater.__file__, headwater.__file__
with SIZED.start(checkpoint="job", trigger="available-now") as running:
    running.wait()
"""
JOBS = '''
from headwater import Files, Job
from pyspark.sql import functions as F


def _size(amount):
    return "large" if amount > 10 else "small"


def sized(orders):
    """Orders with a size, which Python workers compute."""
    return orders.select("id", F.udf(_size, "string")("amount").alias("size"))


SIZED = Job("sized", sized, mode="append", writes=Files("out"),
    reads=Files("orders", schema="id INT, amount INT", options={"maxFilesPerTrigger": "1"}))
'''
ATTACHED = """
import headwater
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

assert ".zip" in headwater.__file__, headwater.__file__
spark = SparkSession.builder.getOrCreate()
assert headwater.attach(spark).is_active
orders = spark.readStream.schema("id INT, amount INT").json("orders")
query = (
    orders.groupBy("id").agg(F.sum("amount").alias("total"))
    .writeStream.outputMode("complete").format("noop")
    .option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
"""


def submit(folder: Path, *arguments: object) -> str:
    settings = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", *map(str, arguments)],
        cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stderr


def test_a_program_without_a_line(folder: Path, command: Command) -> None:
    """With the printed options, a program that does not mention Headwater is recorded, and can be rewound."""
    text = (PROGRAMS / "cleaned_orders.py").read_text()
    program = folder / "plain.py"
    program.write_text("".join(line for line in text.splitlines(True) if "headwater" not in line))
    options = json.loads(headwater_command("attach", "--json").stdout)["options"]
    log = submit(folder, "--master", "local[2]", *options, program, folder)
    assert "Headwater" not in log, "no warning"
    files = LocalTree(folder / "checkpoint")
    assert live_lease(files) is None
    assert list(read_progress(files)) == [0, 1, 2]
    assert read_job_record(files).sink == f"files:{folder}/out?format=parquet"
    rows = output(folder).total()
    assert command("rewind", folder / "checkpoint", "--to", 0, "--yes").status == 0
    assert 0 < output(folder).total() < rows


@pytest.mark.slow
def test_the_package_as_a_zip_file_on_a_cluster(spark_cluster: Cluster, folder: Path, command: Command) -> None:
    """A job and an attached program run with --py-files, on workers that get their code from there."""
    package = Path(headwater.__file__).parent
    (folder / "zipped").mkdir()
    shutil.copytree(package, folder / "zipped" / "headwater", ignore=shutil.ignore_patterns("__pycache__"))
    archive = shutil.make_archive(str(folder / "headwater"), "zip", folder / "zipped")
    shutil.rmtree(folder / "zipped")
    (folder / "shipped").mkdir()
    (folder / "shipped" / "sized_orders.py").write_text(JOBS)
    (folder / "starts.py").write_text(STARTS)
    (folder / "attached.py").write_text(ATTACHED)
    small = ["--master", spark_cluster.master, "--conf", "spark.executor.memory=512m"]
    small += ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.host=127.0.0.1"]
    code = ["--py-files", f"{archive},{folder / 'shipped' / 'sized_orders.py'}"]

    submit(folder, *small, *code, folder / "starts.py")
    assert output(folder).total() == 18
    assert {row[1] for row in output(folder)} == {"large", "small"}
    assert command("rewind", folder / "job", "--to", 1, "--yes").status == 0
    submit(folder, *small, *code, folder / "starts.py")
    assert output(folder).total() == 18

    submit(folder, *small, *code, folder / "attached.py")
    record = read_job_record(LocalTree(folder / "checkpoint"))
    assert (record.sink, record.mode) == ("noop:", "complete")
    assert record.source == f"files:{folder}/orders?format=json"
