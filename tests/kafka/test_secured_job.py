"""A job on real Spark that reads from and writes to a broker with TLS and a login."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker_support import PASSWORD, Broker, run_here
from headwater import Job, Kafka
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import read_job_record
from headwater.core.errors import UsageProblem
from headwater.jobs.uris import source_from_uri
from headwater.kafka.options import PROPERTIES_VARIABLE
from headwater.kafka.records import read_records
from headwater.spark.dropped import DroppedRecords
from headwater.spark.preflight import check_services
from spark.draining import drain_source
from spark.topic_support import make, send


def count_by_user(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy("user").count()


def test_secured_topics_end_to_end(
    headwater_spark: SparkSession, secured_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job reads, counts and writes; log, rewind and late then work on its checkpoint, which has no password in it."""
    make(secured_broker, "clicks", 2)
    send(secured_broker, "clicks", ['{"user":"ann"}', '{"user":"bob"}', '{"user":"ann"}', "malformed"], partitions=2)
    connection = {"servers": secured_broker.bootstrap, "options": secured_broker.options}
    job = Job(
        "clicks",
        count_by_user,
        reads=Kafka("clicks", "user STRING", **connection),
        writes=Kafka("counts", **connection),
        mode="update",
        trigger="available-now",
    )
    check_services(job)
    checkpoint = tmp_path / "checkpoint"
    drain_source(headwater_spark, job, checkpoint)
    written = read_records(secured_broker.connection, "counts", from_beginning=True, count=2, quiet_seconds=120)
    counts = [json.loads(record.value or b"") for record in written]
    assert {row["user"]: row["count"] for row in counts} == {"ann": 2, "bob": 1}

    files = LocalTree(checkpoint)
    assert PASSWORD.encode() not in files.read(JOB_FILE)
    logged = [json.loads(line) for line in run_here("log", checkpoint, "--json").stdout.splitlines()]
    assert logged[0]["sources"][0]["end"] == {"clicks": {"0": 2, "1": 2}}

    recorded = read_job_record(files).source or ""
    resumed = replace(job, reads=source_from_uri(recorded, job.reads))
    with pytest.raises(UsageProblem, match="was redacted when the source was recorded"):
        DroppedRecords(headwater_spark, resumed, History(files))
    monkeypatch.setenv(PROPERTIES_VARIABLE, str(secured_broker.data / "client.properties"))
    planned = run_here("rewind", checkpoint, "--redo", 0, "--dry-run", "--json")
    assert json.loads(planned.stdout)["rereads"][0]["still_there"] is True, planned.stderr
    (dropped,) = DroppedRecords(headwater_spark, resumed, History(files)).in_batch(0)
    assert (dropped.as_dict()["reason"], dropped.as_dict()["value"]) == ("malformed", "malformed")
