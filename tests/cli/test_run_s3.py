"""A job on files that land in S3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_support import headwater, run_here
from cli.commands import running
from cli.one_process import run_all
from headwater.checkpoint.record import PROGRESS_FILE
from s3_support import BUCKET, S3
from waiting_support import wait_until

ROWS_OF_A_RATE = """
from headwater import Console, Job, Rate

JOB = Job("ticks", lambda rows: rows, reads=Rate(10), writes=Console())
"""


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
    results = run_all(tmp_path, *commands, own_jvm=True)
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


@pytest.mark.slow
def test_stop_of_a_job_whose_checkpoint_is_in_s3(s3: S3, tmp_path: Path) -> None:
    """The request reaches the job through the bucket; it finishes its batch, and the next start continues after it."""
    checkpoint = f"s3a://{BUCKET}/stopped"
    conf = {"endpoint": s3.endpoint, "endpoint.region": "us-east-1", "path.style.access": "true"}
    settings = [word for name, value in conf.items() for word in ("--conf", f"spark.hadoop.fs.s3a.{name}={value}")]
    (tmp_path / "job.py").write_text(ROWS_OF_A_RATE)
    run = ("run", "job.py:JOB", "--checkpoint", checkpoint, "--trigger", "1 second", *settings)

    def committed() -> list[int]:
        logged = run_here("log", checkpoint, "--json")
        found = [json.loads(line) for line in logged.stdout.splitlines()]
        return [batch["batch_id"] for batch in found if batch["status"] == "committed"]

    last = -1
    for stop in (("--wait", "240"), ("--wait", "240", "--now")):
        with running(tmp_path, *run) as job:
            job.wait_for("batch ")
            wait_until(lambda: max(committed(), default=-1) > last, "a batch in S3")  # noqa: B023  it is called here
            stopped = run_here("stop", checkpoint, *stop)
            assert (stopped.returncode, "stopped" in stopped.stdout) == (0, True), stopped.stderr
            assert job.end() in (0, 130)
        numbers = committed()
        assert numbers == list(range(len(numbers))) and numbers[-1] > last
        last = numbers[-1]
        # An interrupted run may have committed its last batch without reporting it.
        recorded = {json.loads(line)["batch_id"] for line in s3.read("stopped", PROGRESS_FILE).splitlines()}
        assert recorded >= set(numbers[:-1])
        assert not [name for name in s3.objects("stopped/_headwater") if "stop" in name]
        again = run_here("stop", checkpoint)
        assert (again.returncode, again.stdout) == (0, f"nothing is running on {checkpoint}\n"), again.stderr
