"""A job on files that land in S3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_support import headwater
from cli.one_process import run_all
from s3_support import BUCKET, S3


@pytest.fixture
def run(s3: S3) -> list[str]:
    """The command, with Spark's settings for the server."""
    conf = {"endpoint": s3.endpoint, "endpoint.region": "us-east-1", "path.style.access": "true"}
    settings = [word for name, value in conf.items() for word in ("--conf", f"spark.hadoop.fs.s3a.{name}={value}")]
    return ["run", "retail-sales", "--set", "per=total", "--mode", "complete", "--trigger", "available-now", *settings]


@pytest.mark.slow
def test_before_the_first_file(run: list[str], tmp_path: Path) -> None:
    """A prefix without objects is refused: for Spark it does not exist."""
    ran = headwater(*run, "--source", f"s3://{BUCKET}/nothing-yet", cwd=tmp_path)
    assert (ran.returncode, ran.stderr.partition("]")[0]) == (10, "error[no-folder"), ran.stderr
    assert f"s3a://{BUCKET}/nothing-yet" in ran.stderr


@pytest.mark.slow
def test_generated_sales_are_counted(run: list[str], s3: S3, tmp_path: Path) -> None:
    """Sales are generated to S3 and counted there; the next run reads only what has landed since."""
    landing = f"s3://{BUCKET}/sales"
    commands = [
        command
        for seed in (1, 2)
        for command in (
            ["generate", "sales", "--to", landing, "--count", "300", "--per-file", "100", "--seed", str(seed)],
            [*run, "--source", landing, "--sink", "memory:sales", "--query", "SELECT * FROM sales"],
            ["log", "retail-sales", "--json"],
        )
    ]
    results = run_all(tmp_path, *commands)
    assert [ran.status for ran in results] == [0] * 6, [ran.err for ran in results]
    names = sorted(s3.objects("sales"))
    assert len(names) == 6
    for landed, batches, (_, ran, logged) in zip(
        (names[:3], names), ([0], [0, 1]), (results[:3], results[3:]), strict=True
    ):
        assert "300 rows" in ran.err
        lines = [line for name in landed for line in s3.read("sales", name).splitlines()]
        assert f"|{sum(json.loads(line)['amount'] for line in lines)}" in ran.out
        assert [json.loads(line)["batch_id"] for line in logged.out.splitlines()] == batches
    record = json.loads((tmp_path / ".headwater/checkpoints/retail-sales/_headwater/job.json").read_text())
    assert record["source"] == f"files:s3a://{BUCKET}/sales"
