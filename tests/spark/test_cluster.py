"""The same job on a Spark standalone cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from spark_cluster_support import SPARK_HOME, Cluster

pytestmark = pytest.mark.slow

JOBS = '''
from headwater import Files, Job, Memory
from pyspark.sql import functions as F
from weights import heavier

def per_digit(rows):
    """Sums of numbers by their last digit, weighted in Python."""
    weigh = F.udf(heavier, "int")
    return rows.groupBy((F.col("number") % 10).alias("digit")).agg(F.sum(weigh("number")).alias("weight"))

PER_DIGIT = Job("per-digit", per_digit, writes=Memory("totals"), mode="complete",
    reads=Files("in", schema="number INT", options={"maxFilesPerTrigger": "1"}))
'''
WEIGHTS = """
def heavier(number):
    return number * 3
"""


def put(folder: Path, number: int) -> list[int]:
    numbers = list(range(number * 7, number * 7 + 20))
    file = folder / "in" / f"{number}.json"
    file.write_text("".join(json.dumps({"number": one}) + "\n" for one in numbers))
    os.utime(file, (1_700_000_000 + number,) * 2)
    return numbers


def weights(numbers: list[int]) -> list[list[int]]:
    return [[digit, sum(one * 3 for one in numbers if one % 10 == digit)] for digit in range(10)]


def shown(output: str) -> list[list[int]]:
    rows = [line.strip("|").split("|") for line in output.splitlines() if line.startswith("|")]
    return [[int(cell) for cell in row] for row in rows[1:]]


def test_a_worker_dies_between_batches(spark_cluster: Cluster, tmp_path: Path) -> None:
    """A killed worker does not change the result, and spark-submit resumes from the same checkpoint."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "weights.py").write_text(WEIGHTS)
    (tmp_path / "in").mkdir()
    numbers = [one for number in range(6) for one in put(tmp_path, number)]
    small = ["--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=2"]
    run = ["run", "jobs.py:PER_DIGIT", "--trigger", "available-now", "--checkpoint", "shared", *small]
    run += ["--query", "SELECT * FROM totals ORDER BY digit"]
    job = subprocess.Popen(
        [sys.executable, "-m", "headwater", *run, "--master", spark_cluster.master],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert job.stderr is not None
    assert job.stdout is not None
    lines = []
    for line in job.stderr:
        lines.append(line)
        if line.startswith("batch 1 "):
            spark_cluster.workers[0].kill()
    found = shown(job.stdout.read())
    assert job.wait() == 0, "".join(lines)
    assert found == weights(numbers)
    assert any(line.startswith("batch 5 ") for line in lines)

    numbers += put(tmp_path, 6)
    submit = [SPARK_HOME / "bin" / "spark-submit", "--master", spark_cluster.master, *small]
    done = subprocess.run(
        [*submit, Path(headwater.__file__).with_name("__main__.py"), *run],
        cwd=tmp_path, env={**os.environ, "PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert shown(done.stdout) == weights(numbers)
