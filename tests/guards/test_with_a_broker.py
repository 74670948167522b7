"""The sources of checkpoints, checked against a real broker."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import pytest

from broker_support import Broker
from cli.running import Command
from headwater.checkpoint.local_tree import LocalTree
from headwater.guards.check import check_sources
from headwater.guards.report import SourceReport
from headwater.guards.topic_record import record_topics
from headwater.kafka.clients import Cluster
from headwater.kafka.group_offsets import commit_offsets, group_offsets
from headwater.kafka.offsets import Partition
from headwater.kafka.topic_facts import topic_ids
from headwater.kafka.topics import create_topic, delete_topic
from waiting_support import wait_until

HOUR = 3_600_000
OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'


class Stream:
    """A checkpoint with the logs of a query that reads a topic, as Spark writes them."""

    def __init__(self, path: Path, broker: Broker, topic: str) -> None:
        self.path, self.topic = path, topic
        for folder in ("offsets", "commits", "_headwater"):
            (path / folder).mkdir(parents=True)
        (path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        record = {"job": "visits", "source": broker.uri(topic), "sink": "console:", "mode": "append"}
        (path / "_headwater/job.json").write_text(json.dumps(record))

    def plan(self, batch: int, *ends: int, age_ms: int = 0, committed: bool = True) -> None:
        file = self.path / f"offsets/{batch}"
        file.write_text(OFFSETS + json.dumps({self.topic: {str(n): end for n, end in enumerate(ends)}}))
        at = time.time() - age_ms / 1000
        os.utime(file, (at, at))
        if committed:
            (self.path / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')

    def check(self) -> SourceReport:
        return check_sources(LocalTree(self.path))

    def found(self) -> list[tuple[str, str]]:
        return [(finding.code, finding.path) for finding in self.check().findings]


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4()}"
    create_topic(broker.connection, name, 2)
    return name


@pytest.fixture
def stream(broker: Broker, topic: str, tmp_path: Path) -> Stream:
    return Stream(tmp_path / "checkpoint", broker, topic)


def test_offsets_and_a_recreated_topic(broker: Broker, topic: str, stream: Stream, command: Command) -> None:
    """Planned offsets are compared with those of the broker, and the id of the topic with the recorded one."""
    broker.produce(topic, *"abcdef", partition=0)
    cluster = Cluster(broker.connection)
    stream.plan(0, 2, 0)
    stream.plan(1, 4, 0)
    record_topics(LocalTree(stream.path), topic_ids(cluster, [topic]), 0)
    report = stream.check()
    assert [finding.code for finding in report.findings] == ["source-checked"]
    assert report.unread == 2
    stream.plan(2, 9, 0, committed=False)
    assert stream.found() == [("offsets-beyond-end", f"kafka:{topic}[0]")]
    (stream.path / "offsets/2").unlink()

    delete_topic(broker.connection, topic)
    wait_until(lambda: topic not in cluster.metadata().topics, "the topic to be deleted")
    assert stream.found() == [("no-topic", f"kafka:{topic}")]
    create_topic(broker.connection, topic, 3)
    broker.produce(topic, *"uvwxyz", partition=0)
    assert stream.found() == [("topic-recreated", f"kafka:{topic}"), ("partitions-added", f"kafka:{topic}")]
    ran = command("fsck", stream.path, "--sources")
    assert ran.status == 1
    assert (
        f"error    topic-recreated  kafka:{topic}: was deleted and recreated: batch 1 read the topic with id" in ran.out
    )
    assert "topic-recreated" not in command("fsck", stream.path).out


def test_retention(broker: Broker, topic: str, stream: Stream) -> None:
    """Records that expired unread are an error. How long the others last follows from the speed of the stream."""
    cluster = Cluster(broker.connection)
    broker.produce(topic, *"abcdef", partition=0)
    broker.configure(topic, retention_ms=10 * HOUR)
    stream.plan(0, 2, 0, age_ms=2 * HOUR)
    report = stream.check()
    assert report.overtaken_in_ms[topic] == pytest.approx(10 * HOUR, rel=0.01)
    assert ("retention-close", f"kafka:{topic}[0]") in stream.found()
    # The two records of the last half hour have nearly the same time, so the stream has stood still.
    stream.plan(1, 4, 0, age_ms=HOUR // 2)
    assert stream.check().overtaken_in_ms[topic] == pytest.approx(10 * HOUR, rel=0.01)
    from confluent_kafka import TopicPartition

    cluster.client.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0)].result()
    assert stream.found()[0] == ("offsets-expired", f"kafka:{topic}[0]")
    assert stream.check().soonest_ms == 0


def test_broker_that_does_not_answer(broker: Broker, stream: Stream, command: Command) -> None:
    """A source that cannot be checked is a warning that states why; --source names another broker."""
    stream.plan(0, 0, 0)
    record = json.loads((stream.path / "_headwater/job.json").read_text())
    dead = {**record, "source": f"kafka://127.0.0.1:1/{stream.topic}"}
    (stream.path / "_headwater/job.json").write_text(json.dumps(dead))
    ran = command("fsck", stream.path, "--sources")
    assert ran.status == 0
    assert f"warning  source-unchecked  kafka {stream.topic}: could not be checked: cannot connect to Kafka" in ran.out
    given = command("fsck", stream.path, "--sources", "--source", record["source"], "--json")
    assert "source-checked" in {json.loads(line)["code"] for line in given.out.splitlines()}
    assert command("fsck", stream.path, "--source", record["source"]).status == 2
    assert command("fsck", stream.path, "--sources", "--source", f"clicks={record['source']}").status == 2


def test_offsets_of_a_group(broker: Broker, topic: str) -> None:
    """A group exists as soon as offsets are committed to it, and may be set back."""
    cluster, group = Cluster(broker.connection), f"g-{uuid.uuid4()}"
    broker.produce(topic, *"abc", partition=1)
    commit_offsets(cluster, group, {Partition(topic, 1): 3})
    assert group_offsets(cluster, group) == {Partition(topic, 1): 3}
    commit_offsets(cluster, group, {Partition(topic, 1): 1})
    assert group_offsets(cluster, group) == {Partition(topic, 1): 1}
