"""A checkpoint on an object store that has bad days, and on one that a cluster shares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bad_proxy import bad_proxy
from test_faults import COUNTS, counted, put

from cli.commands import assert_no_stack_trace
from s3_support import S3
from spark_cluster_support import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


def s3_conf(endpoint: str, **more: str) -> list[str]:
    """moto does not take s3a's fast way to put up local files, which RocksDB's snapshots are."""
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


def run(folder: Path, endpoint: str, *words: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", *words],
        cwd=folder, env={**os.environ, "AWS_ENDPOINT_URL": endpoint}, capture_output=True, text=True, timeout=timeout,
        check=False,
    )  # fmt: skip


def counts(folder: Path, endpoint: str, checkpoint: str) -> dict[str, int]:
    told = run(folder, endpoint, "state", checkpoint, "--json")
    assert told.returncode == 0, told.stderr
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    return {row["key"]["order_status"]: row["value"]["count"] for row in rows}


def test_an_object_store_with_bad_days(s3: S3, tmp_path: Path) -> None:
    """Slow answers and a tenth of errors only take time; a store that answers nothing but errors ends the job clearly."""
    statuses = [status for number in range(4) for status in put(tmp_path / "in", number)]
    checkpoint = s3.url("bad-days", "s3a")
    words = ["run", *COUNTS, "--source", f"files:{tmp_path}/in?maxFilesPerTrigger=1", "--sink", "console:"]
    words += ["--checkpoint", checkpoint, "--trigger", "available-now"]
    with bad_proxy(s3.endpoint) as (endpoint, mood):
        mood.errors, mood.delay_seconds = 0.1, 0.03
        bad = run(tmp_path, s3.endpoint, *words, *s3_conf(endpoint))
        assert bad.returncode == 0, bad.stderr
        assert mood.refused > 10
        statuses += put(tmp_path / "in", 4)
        mood.errors, mood.delay_seconds = 1.0, 0.0
        # By default s3a takes many errors in a row for a busy store, and waits longer and longer: for a quarter of an hour.
        limits = ("attempts.maximum", "retry.limit", "retry.throttle.limit")
        quick = {f"spark.hadoop.fs.s3a.{name}": "2" for name in limits}
        dead = run(tmp_path, s3.endpoint, *words, *s3_conf(endpoint, **quick))
        assert dead.returncode not in (0, 17), dead.stderr
        assert_no_stack_trace(dead.stderr)
        mood.errors = 0.0
        ran = run(tmp_path, s3.endpoint, *words, *s3_conf(endpoint))
        assert ran.returncode == 0, ran.stderr
    assert counts(tmp_path, s3.endpoint, checkpoint) == counted(statuses)
    assert run(tmp_path, s3.endpoint, "fsck", checkpoint).returncode == 0
    print(f"S3 proxy: {mood.passed} requests passed, {mood.refused} refused")


def test_a_cluster_with_its_checkpoint_on_s3(s3: S3, spark_cluster: Cluster, tmp_path: Path) -> None:
    """A worker and then the driver are killed; the next run goes on from the bucket, and counts what a local run counts."""
    statuses = [status for number in range(8) for status in put(tmp_path / "in", number)]
    checkpoint = s3.url("cluster", "s3a")
    words = ["run", *COUNTS, "--source", f"files:{tmp_path}/in?maxFilesPerTrigger=1", "--sink", "console:"]
    words += ["--trigger", "available-now", *s3_conf(s3.endpoint)]
    on_cluster = [*words, "--checkpoint", checkpoint, "--master", spark_cluster.master]
    on_cluster += ["--conf", "spark.executor.memory=512m"]
    job = subprocess.Popen(
        [sys.executable, "-m", "headwater", *on_cluster],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert job.stderr is not None
    said = []
    for line in job.stderr:
        said.append(line)
        if line.startswith("batch 1 "):
            spark_cluster.workers[0].kill()
        if line.startswith("batch 4 "):
            os.killpg(job.pid, 9)
            break
    job.wait()
    assert any(line.startswith("batch 4 ") for line in said), "".join(said)
    statuses += put(tmp_path / "in", 8)
    again = run(tmp_path, s3.endpoint, *on_cluster)
    assert again.returncode == 0, again.stderr
    local = run(tmp_path, s3.endpoint, *words, "--checkpoint", str(tmp_path / "local"))
    assert local.returncode == 0, local.stderr
    found = counts(tmp_path, s3.endpoint, checkpoint)
    assert found == counts(tmp_path, s3.endpoint, str(tmp_path / "local")) == counted(statuses)
    assert run(tmp_path, s3.endpoint, "fsck", checkpoint).returncode == 0
