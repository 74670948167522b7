"""What accompanies a job on real Spark: offsets in a consumer group, ids of topics, alerts, and the record of failures."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater
from alerts.receiver import receiving
from broker_support import Broker
from headwater import Files, Job, Kafka
from headwater.alerts.rules import AlertConfig, Rule, Webhook
from headwater.checkpoint.failures import read_failures
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.runs import deployed_changes, read_runs
from headwater.core.errors import JobFailed, UsageProblem
from headwater.guards.topic_record import read_topics
from headwater.kafka.clients import Cluster
from headwater.kafka.group_offsets import group_offsets
from headwater.kafka.offsets import Partition
from headwater.kafka.topics import delete_topic
from headwater.spark.alert_followers import alerting
from headwater.spark.kafka_followers import committing_offsets
from headwater.spark.ownership import Run
from headwater.spark.runner import start_job
from spark.topic_support import make, send
from waiting_support import wait_until

FAILING = Rule("failing", "batches-failing", 1, within_ms=3_600_000)


def same(rows: DataFrame) -> DataFrame:
    return rows


def failing(rows: DataFrame) -> DataFrame:
    return rows.select(F.raise_error(F.lit("out of luck")).cast("string").alias("value"))


def test_consumer_group_and_recreated_topic(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The group has the offsets of the last committed batch; a topic that was recreated between two runs is reported."""
    topic, group, warnings = f"t-{uuid.uuid4()}", f"g-{uuid.uuid4()}", list[str]()
    make(broker, topic, partitions=2)
    send(broker, topic, ["a", "b", "c"], partitions=2)
    source = Kafka(topic, format="text", servers=broker.bootstrap, options={"startingOffsets": "earliest"})
    job = Job(
        "grouped", same, reads=source, writes=Files(str(tmp_path / "out"), format="json"), trigger="available-now"
    )
    cluster, checkpoint = Cluster(broker.connection), tmp_path / "checkpoint"

    def run(job: Job = job) -> None:
        follower = committing_offsets(job, group)
        start_job(headwater_spark, Run(job, None, str(checkpoint)), warn=warnings.append, followers=[follower]).wait()

    run()
    assert group_offsets(cluster, group) == {Partition(topic, 0): 2, Partition(topic, 1): 1}
    (first,) = read_topics(LocalTree(checkpoint))
    assert (first.topic, first.since_batch, warnings) == (topic, 0, [])

    delete_topic(broker.connection, topic)
    wait_until(lambda: topic not in cluster.metadata().topics, "the topic to be deleted")
    make(broker, topic, partitions=2)
    send(broker, topic, ["d", "e", "f", "g", "h", "i"], partitions=2)
    run(replace(job, reads=replace(source, options={**source.options, "failOnDataLoss": "false"})))
    assert [text for text in warnings if f"the topic {topic} was deleted and recreated since batch 0" in text]
    assert group_offsets(cluster, group) == {Partition(topic, 0): 3, Partition(topic, 1): 3}
    assert [entry.since_batch for entry in read_topics(LocalTree(checkpoint))] == [0, 1]


def test_a_failure_is_recorded_and_alerted(
    headwater_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run and the failure that ends it are in the checkpoint, and the alert is delivered before the job has ended."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.txt").write_text("a\n")
    job = Job(
        "unlucky",
        failing,
        reads=Files(str(tmp_path / "in"), format="text"),
        writes=Files(str(tmp_path / "out"), format="json"),
        trigger="available-now",
    )
    with receiving() as receiver:
        config = AlertConfig((FAILING,), (Webhook(receiver.url),))
        for number in (1, 2):
            monkeypatch.setenv("HEADWATER_JOB_VERSION", f"v{number}")
            follower = alerting(job.name, config, None, lambda _: None)
            running = start_job(headwater_spark, Run(job, None, str(tmp_path / "checkpoint")), followers=[follower])
            with pytest.raises(JobFailed):
                running.wait()
            assert read_failures(LocalTree(tmp_path / "checkpoint"))[-1].number == number
    first, second = read_runs(LocalTree(tmp_path / "checkpoint"))
    assert (first.next_batch, first.version, first.spark) == (0, "v1", headwater_spark.version)
    assert (first.code or "").startswith("python3.")
    assert deployed_changes(first, second) == ["version v2 instead of v1"]
    (alert,) = map(json.loads, receiver.bodies)  # once, for two failures
    assert (alert["status"], alert["rule"], alert["job"]) == ("firing", "failing", "unlucky")
    assert "1 failure in 1 h; the last one: " in alert["summary"]


def test_an_attached_query_that_fails(
    headwater_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of another program's query is recorded and alerted too, also if it ends between two evaluations."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.txt").write_text("a\n")
    with receiving() as receiver:
        (tmp_path / "headwater.toml").write_text(
            f'[alerts]\nevery = "3s"\n[[alerts.rule]]\nwhen = "batches-failing"\n'
            f'[[alerts.send]]\nwebhook = "{receiver.url}"'
        )
        monkeypatch.chdir(tmp_path)
        attached = headwater.attach(headwater_spark)
        try:
            rows = failing(headwater_spark.readStream.text(str(tmp_path / "in")))
            writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.queryName("unlucky").start()
            wait_until(lambda: receiver.requests, "the alert")
        finally:
            attached.detach()
    assert not query.isActive
    (failure,) = read_failures(LocalTree(tmp_path / "checkpoint"))
    assert (failure.code, failure.number) == ("query-failed", 1)
    assert "out of luck" in failure.problem
    assert json.loads(receiver.bodies[0])["job"] == "unlucky"


@pytest.mark.parametrize(
    ("change", "group", "problem"),
    [
        (lambda job: replace(job, reads=Files("in", format="text")), "g", "needs a Kafka source"),
        (lambda job: job, " ", "takes the name of a consumer group"),
        (
            lambda job: replace(job, reads=Kafka("t", options={"kafka.group.id": "g"})),
            "g",
            "are members of the group g",
        ),
    ],
)
def test_groups_that_cannot_be_used(change: Callable[[Job], Job], group: str, problem: str) -> None:
    """A job without Kafka, a missing name and a group of Spark's own consumers are refused before Spark starts."""
    job = change(Job("x", same, reads=Kafka("t"), writes=Files("out")))
    with pytest.raises(UsageProblem, match=problem):
        committing_offsets(job, group)
