"""Replays of recorded batches from a real topic that has newer records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from broker_support import Broker
from headwater.core.errors import ChangeRefused
from headwater.jobs.endpoints import Kafka
from headwater.jobs.loading import load_job
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.replay import replay, replayable
from headwater.views.comparison import compare_rows
from spark import topic_support as topics
from spark.draining import drain_source
from spark.replay_support import Recorded, by_user, doubled, golden_steps, tree

JOB = load_job("browser-stats-stateful")


def newer(number: int) -> str:
    return json.dumps({"userId": number, "page": "x", "eventTime": "2024-10-06T23:00:00Z", "browser": "Newer"})


@pytest.fixture(scope="module")
def recorded(headwater_spark, broker: Broker, tmp_path_factory) -> tuple[Recorded, dict[int, list[dict[str, object]]]]:
    """Return a run on the golden visits, and the rows that each batch wrote to the output topic."""
    topics.make(broker, "replay-in", 2)
    topics.make(broker, "replay-out")
    source = replace(JOB.reads, topic="replay-in", servers=broker.bootstrap)
    sink = replace(JOB.writes, topic="replay-out", servers=broker.bootstrap)
    checkpoint = tmp_path_factory.mktemp("replay-kafka") / "checkpoint"
    job = replace(JOB, reads=source, writes=sink, trigger="available-now")
    found = Recorded(replayable(job), checkpoint, checkpoint)
    written: dict[int, list[dict[str, object]]] = {}
    for lines in golden_steps("browser_stats_stateful")[:4]:
        before = len(topics.values(broker, "replay-out"))
        topics.send(broker, "replay-in", lines, partitions=2)
        ran = drain_source(headwater_spark, job, checkpoint)
        found.progress += ran
        written |= {batch.batch_id: [] for batch in ran}
        written[ran[0].batch_id] = [json.loads(value) for _, value in topics.values(broker, "replay-out")[before:]]
    topics.send(broker, "replay-in", [newer(number) for number in range(6)], partitions=2)
    return found, written


def in_order(rows: list[dict[str, object]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.slow
def test_batches_emit_the_recorded_rows(headwater_spark, broker: Broker, recorded) -> None:
    """Each replay emits what the batch wrote, despite newer records; topics and checkpoint are not modified."""
    found, written = recorded
    unload_state_stores(headwater_spark)  # the stores of the run may still upload snapshots
    before, files = topics.snapshot(broker), tree(found.checkpoint)
    last = max(written)
    first = replay(headwater_spark, found.job, found.files, 0, last)
    assert {one.batch_id: in_order(one.rows) for one in first} == {
        number: in_order(rows) for number, rows in written.items()
    }
    assert sum(len(rows) for rows in written.values()) >= 5
    again = replay(headwater_spark, found.job, found.files, 2, last)
    assert again == first[2:]
    now = tree(found.checkpoint)
    assert sorted(path for path in {*files, *now} if files.get(path) != now.get(path)) == []
    assert topics.snapshot(broker) == before


def test_changed_code(headwater_spark, recorded) -> None:
    """Changed code emits other rows; with another state schema it is refused unless both start from empty state."""
    found, written = recorded
    number = next(number for number, rows in written.items() if number > 0 and rows)
    (old,) = replay(headwater_spark, found.job, found.files, number, number)
    (new,) = replay(headwater_spark, replace(found.job, transform=doubled), found.files, number, number)
    compared = compare_rows(number, old.rows, new.rows)
    assert [after["count"] for _, after in compared.differ] == [2 * before["count"] for before, _ in compared.differ]
    assert len(compared.differ) == len(old.rows)

    other = replace(found.job, transform=by_user)
    with pytest.raises(ChangeRefused, match="different schema"):
        replay(headwater_spark, other, found.files, number, number)
    (fresh,) = replay(headwater_spark, other, found.files, number, number, from_empty_state=True)
    (scratch,) = replay(headwater_spark, found.job, found.files, number, number, from_empty_state=True)
    read = found.progress[number].input_rows - found.progress[number].malformed
    assert sum(row["count"] for row in fresh.rows) == sum(row["count"] for row in scratch.rows) == read


@pytest.mark.slow
def test_stateless_to_stateful_is_refused(headwater_spark, broker: Broker, tmp_path: Path) -> None:
    """A stateful job cannot resume from a checkpoint without state."""
    topics.make(broker, "replay-stateless")
    source = replace(JOB.reads, topic="replay-stateless", servers=broker.bootstrap)
    plain = replace(JOB, transform=lambda visits: visits.select("browser"), reads=source, mode="append")
    plain = replace(
        plain, writes=replace(JOB.writes, topic="replay-out-2", servers=broker.bootstrap), trigger="available-now"
    )
    for _ in range(2):
        topics.send(broker, "replay-stateless", [newer(1)])
        drain_source(headwater_spark, plain, tmp_path / "checkpoint")
    recorded = Recorded(plain, tmp_path, tmp_path / "checkpoint")
    (again,) = replay(headwater_spark, replayable(plain), recorded.files, 1, 1)
    assert again.rows == [{"browser": "Newer"}]
    counted = replace(plain, transform=lambda visits: visits.groupBy("browser").count(), mode="update")
    with pytest.raises(ChangeRefused, match="different schema"):
        replay(headwater_spark, replayable(counted), recorded.files, 1, 1)


def test_deleted_records(headwater_spark, broker: Broker, tmp_path: Path) -> None:
    """A batch whose records were deleted is refused, even if the job itself tolerates data loss."""
    topics.make(broker, "replay-gone")
    options = {"failOnDataLoss": "false"}
    source = Kafka("replay-gone", JOB.reads.schema, servers=broker.bootstrap, options=options)
    sink = replace(JOB.writes, topic="replay-out-3", servers=broker.bootstrap)
    job = replace(JOB, reads=source, writes=sink, trigger="available-now")
    for _ in range(2):
        topics.send(broker, "replay-gone", [newer(1), newer(2)])
        drain_source(headwater_spark, job, tmp_path / "checkpoint")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition("replay-gone", 0, 1)]).values()
    deleted.result(120)
    recorded = Recorded(job, tmp_path, tmp_path / "checkpoint")
    with pytest.raises(ChangeRefused, match="no longer has") as refused:
        replay(headwater_spark, replayable(job), recorded.files, 0, 0)
    assert refused.value.code == "data-gone"
