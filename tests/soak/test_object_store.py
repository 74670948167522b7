"""A checkpoint on an unreliable object store, and on one that a cluster shares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_proxy import faulty_proxy
from test_faults import COUNTS, count_by_status, put_orders

from cli.commands import assert_no_stack_trace
from s3_support import S3
from spark_cluster_support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


def s3_conf(endpoint: str, **more: str) -> list[str]:
    """Return the settings for moto, which does not support s3a's optimized upload of local files."""
    conf = {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "test",
        "spark.hadoop.fs.s3a.secret.key": "test",
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        **more,
    }
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


def run(folder: Path, endpoint: str, *arguments: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        cwd=folder, env={**os.environ, "AWS_ENDPOINT_URL": endpoint}, capture_output=True, text=True, timeout=timeout,
        check=False,
    )  # fmt: skip


def counts(folder: Path, endpoint: str, checkpoint: str) -> dict[str, int]:
    result = run(folder, endpoint, "state", checkpoint, "--json")
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return {row["key"]["order_status"]: row["value"]["count"] for row in rows}


def test_an_unreliable_object_store(s3: S3, tmp_path: Path) -> None:
    """Delays and 10% errors only slow a job down; a store that always fails ends the job with a clear message."""
    statuses = [status for number in range(4) for status in put_orders(tmp_path / "in", number)]
    checkpoint = s3.url("unreliable", "s3a")
    arguments = ["run", *COUNTS, "--source", f"files:{tmp_path}/in?maxFilesPerTrigger=1", "--sink", "console:"]
    arguments += ["--checkpoint", checkpoint, "--trigger", "available-now"]
    with faulty_proxy(s3.endpoint) as (endpoint, faults):
        faults.error_rate, faults.delay_seconds = 0.1, 0.03
        slow = run(tmp_path, s3.endpoint, *arguments, *s3_conf(endpoint))
        assert slow.returncode == 0, slow.stderr
        assert faults.refused > 10
        statuses += put_orders(tmp_path / "in", 4)
        faults.error_rate, faults.delay_seconds = 1.0, 0.0
        # By default, s3a treats repeated errors as throttling and backs off for a quarter of an hour.
        limits = ("attempts.maximum", "retry.limit", "retry.throttle.limit")
        few_retries = {f"spark.hadoop.fs.s3a.{name}": "2" for name in limits}
        down = run(tmp_path, s3.endpoint, *arguments, *s3_conf(endpoint, **few_retries))
        assert down.returncode not in (0, 17), down.stderr
        assert_no_stack_trace(down.stderr)
        faults.error_rate = 0.0
        ran = run(tmp_path, s3.endpoint, *arguments, *s3_conf(endpoint))
        assert ran.returncode == 0, ran.stderr
    assert counts(tmp_path, s3.endpoint, checkpoint) == count_by_status(statuses)
    assert run(tmp_path, s3.endpoint, "fsck", checkpoint).returncode == 0
    print(f"S3 proxy: {faults.passed} requests passed, {faults.refused} refused")


def test_a_cluster_with_its_checkpoint_on_s3(s3: S3, spark_cluster: Cluster, tmp_path: Path) -> None:
    """After a worker and then the driver are killed, the next run resumes from the bucket and counts what a local run does."""
    statuses = [status for number in range(8) for status in put_orders(tmp_path / "in", number)]
    checkpoint = s3.url("cluster", "s3a")
    arguments = ["run", *COUNTS, "--source", f"files:{tmp_path}/in?maxFilesPerTrigger=1", "--sink", "console:"]
    arguments += ["--trigger", "available-now", *s3_conf(s3.endpoint)]
    on_cluster = [*arguments, "--checkpoint", checkpoint, "--master", spark_cluster.master]
    on_cluster += ["--conf", "spark.executor.memory=512m"]
    job = subprocess.Popen(
        [sys.executable, "-m", "headwater", *on_cluster],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert job.stderr is not None
    printed = []
    for line in job.stderr:
        printed.append(line)
        if line.startswith("batch 1 "):
            spark_cluster.workers[0].kill()
        if line.startswith("batch 4 "):
            os.killpg(job.pid, 9)
            break
    job.wait()
    assert any(line.startswith("batch 4 ") for line in printed), "".join(printed)
    statuses += put_orders(tmp_path / "in", 8)
    resumed = run(tmp_path, s3.endpoint, *on_cluster)
    assert resumed.returncode == 0, resumed.stderr
    local = run(tmp_path, s3.endpoint, *arguments, "--checkpoint", str(tmp_path / "local"))
    assert local.returncode == 0, local.stderr
    found = counts(tmp_path, s3.endpoint, checkpoint)
    assert found == counts(tmp_path, s3.endpoint, str(tmp_path / "local")) == count_by_status(statuses)
    assert run(tmp_path, s3.endpoint, "fsck", checkpoint).returncode == 0


def test_changes_of_a_checkpoint_that_a_cluster_writes(s3: S3, spark_cluster: Cluster, tmp_path: Path) -> None:
    """A job survives the loss of its executors and of the master; its checkpoint is rewound and migrated in the bucket."""
    statuses = [status for number in range(8) for status in put_orders(tmp_path / "in", number)]
    checkpoint = s3.url("changed-cluster", "s3a")
    arguments = ["run", *COUNTS, "--source", f"files:{tmp_path}/in?maxFilesPerTrigger=1", "--sink", "console:"]
    arguments += ["--checkpoint", checkpoint, "--master", spark_cluster.master, *s3_conf(s3.endpoint)]
    arguments += ["--conf", "spark.executor.memory=512m", "--trigger", "available-now"]
    with subprocess.Popen(
        [sys.executable, "-m", "headwater", *arguments],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as job:  # fmt: skip
        assert job.stderr is not None
        killed, printed = 0, []
        for line in job.stderr:
            printed.append(line)
            if line.startswith("batch 1 "):
                killed = sum(worker.kill_executors() for worker in spark_cluster.workers)
            if line.startswith("batch 3 "):
                spark_cluster.restart_master()
    assert killed
    assert job.returncode == 0, "".join(printed)
    assert counts(tmp_path, s3.endpoint, checkpoint) == count_by_status(statuses)
    for change in (["rewind", checkpoint, "--to", "3"], ["migrate", checkpoint, "--store", "hdfs"]):
        done = run(tmp_path, s3.endpoint, *change, "--yes")
        assert done.returncode == 0, done.stderr
        statuses += put_orders(tmp_path / "in", len(statuses))
        resumed = run(tmp_path, s3.endpoint, *arguments)
        assert resumed.returncode == 0, resumed.stderr
        assert counts(tmp_path, s3.endpoint, checkpoint) == count_by_status(statuses)
        assert run(tmp_path, s3.endpoint, "fsck", checkpoint).returncode == 0
