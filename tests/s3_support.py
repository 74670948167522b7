"""A local S3 server (moto, in a process of its own) and a checkpoint that Spark writes to it through s3a.

Headwater finds the server by AWS's own environment variables, like any other.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_support import free_port
from waiting_support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "headwater-tests"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True)
class S3:
    """A server with one bucket, and a plain client that shows independently what the bucket contains."""

    endpoint: str
    client: Any

    def url(self, prefix: str, scheme: str = "s3") -> str:
        return f"{scheme}://{BUCKET}/{prefix}"

    def objects(self, prefix: str) -> dict[str, datetime]:
        """Return the objects below a prefix by relative path, with the time of their last modification.

        The empty objects that s3a keeps as placeholders for folders are left out.
        """
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
        found = [item for page in pages for item in page.get("Contents", ())]
        files = [item for item in found if not item["Key"].endswith("/")]
        return {item["Key"].removeprefix(f"{prefix}/"): item["LastModified"] for item in files}

    def read(self, prefix: str, path: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=BUCKET, Key=f"{prefix}/{path}")["Body"].read()
        return data

    def download(self, prefix: str, into: Path) -> Path:
        """Copy the objects below a prefix to a folder, with their times, and return the folder."""
        for path, written in self.objects(prefix).items():
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.read(prefix, path))
            os.utime(target, (written.timestamp(), written.timestamp()))
        return into

    def upload(self, folder: Path, prefix: str) -> str:
        """Copy the files of a folder to a prefix and return its URL."""
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{file.relative_to(folder)}", Body=file.read_bytes())
        return self.url(prefix)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """A running server with an empty bucket, until the end of the test session."""
    import boto3

    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    held = pytest.MonkeyPatch()
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint}.items():
        held.setenv(name, value)
    try:
        wait_until(lambda: _answers(port, server), "an answer of the S3 server")
        client = boto3.client("s3", endpoint_url=endpoint)
        client.create_bucket(Bucket=BUCKET)
        yield S3(endpoint, client)
    finally:
        held.undo()
        server.terminate()
        server.wait(120)


@pytest.fixture
def unreachable_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """S3 at an address where nothing listens. Clients are cached, with the address that they started with."""
    import s3fs

    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


def _answers(port: int, server: subprocess.Popen[bytes]) -> bool:
    assert server.poll() is None, "the S3 server exited before it responded"
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class WrittenBySpark:
    """A checkpoint on the server, the folder of its file sink, and its first and last state by Spark's own reader."""

    prefix: str
    sink_prefix: str
    answers: dict[int, list[str]]


@pytest.fixture(scope="session")
def s3_checkpoint(s3: S3, headwater_spark: SparkSession) -> WrittenBySpark:
    """A query with windowed counts whose source, sink and checkpoint are on S3."""
    from headwater.spark.internals.state_stores import unload_state_stores
    from headwater.spark.session import temporary_settings

    settings = {
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "test",
        "fs.s3a.secret.key": "test",
        # RocksDB uploads its snapshots as local files, and moto does not support s3a's optimized upload of those.
        "fs.s3a.optimized.copy.from.local.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.fileSource.log.compactInterval": "2",
    }
    with temporary_settings(headwater_spark, settings):
        written = WrittenBySpark("checkpoint", "sink", _write_with_spark(headwater_spark, s3))
        # Spark's maintenance would go on uploading snapshots of a store that it has loaded.
        unload_state_stores(headwater_spark)
    return written


def _write_with_spark(spark: SparkSession, s3: S3) -> dict[int, list[str]]:
    from pyspark.sql import functions as F

    root = f"s3a://{BUCKET}"
    for feed in range(2):
        rows = [{"user": f"user {nth}", "at": f"2024-05-01T10:{feed * 10 + nth:02d}:00Z"} for nth in range(4)]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        s3.client.put_object(Bucket=BUCKET, Key=f"input/feed-{feed}.json", Body=lines.encode())
        events = spark.readStream.schema("user STRING, at TIMESTAMP").json(f"{root}/input")
        windows = events.withWatermark("at", "5 minutes").groupBy(F.window("at", "5 minutes"), "user")
        writer = windows.count().writeStream.outputMode("append").trigger(availableNow=True).format("json")
        writer.option("checkpointLocation", f"{root}/checkpoint").start(f"{root}/sink").awaitTermination()
    metadata = spark.read.format("state-metadata").load(f"{root}/checkpoint").first()
    answers = {}
    for batch in (metadata["minBatchId"], metadata["maxBatchId"]):
        state = spark.read.format("statestore").option("batchId", batch).load(f"{root}/checkpoint")
        lines = state.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
        answers[batch] = sorted(line[0] for line in lines)
    return answers
