"""Kafka as source and sink, on a real broker."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import Broker, run_here
from headwater import Console, Files, Job, Kafka
from headwater.core.errors import ServiceUnreachable
from headwater.spark.ownership import Run
from headwater.spark.preflight import check_services
from headwater.spark.runner import run_job

VISIT = "user STRING, at TIMESTAMP, page STRUCT<path STRING>"


def visit(user: str, at: str, path: str = "/") -> str:
    return json.dumps({"user": user, "at": f"2024-03-01T{at}:00Z", "page": {"path": path}})


def visits(rows: DataFrame) -> DataFrame:
    """The visits, unchanged."""
    return rows


def per_hour(rows: DataFrame) -> DataFrame:
    """Visits per user and hour."""
    return rows.withWatermark("at", "1 hour").groupBy("user", F.window("at", "1 hour")).count()


def ready_made(rows: DataFrame) -> DataFrame:
    """Kafka's own columns, built by the job."""
    return rows.select(F.col("user").alias("key"), F.encode("page.path", "UTF-8").alias("value"))


def read_back(broker: Broker, topic: str, count: int) -> list[tuple[str | None, str]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"read-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[tuple[str | None, str]] = []
    try:
        while len(found) < count:
            message = consumer.poll(120)
            assert message is not None, f"only {len(found)} of {count} records in {topic}"
            assert message.error() is None
            key = message.key()
            found.append((key.decode() if key is not None else None, message.value().decode()))
    finally:
        consumer.close()
    return found


def make_topic(broker: Broker, name: str, partitions: int = 1) -> Kafka:
    done = run_here("topics", "create", name, "--partitions", partitions, "--bootstrap", broker.bootstrap)
    assert done.returncode == 0, done.stderr
    return Kafka(name, schema=VISIT, servers=broker.bootstrap)


def test_json_in_and_out(broker: Broker, drain) -> None:
    """JSON records become rows, and rows become JSON values with the chosen key; malformed records are counted."""
    source = make_topic(broker, "k-visits", partitions=2)
    sink = make_topic(broker, "k-per-hour")
    job = Job("k", per_hour, reads=source, writes=replace(sink, key="user"), mode="update", trigger="available-now")
    broker.produce("k-visits", visit("ann", "10:00"), "{'user': 'ann', 'at': '2024-03-01T10:30:00Z'}", "nonsense", "")
    first = drain(job)
    assert (sum(batch.input_rows for batch in first), sum(batch.malformed for batch in first)) == (4, 2)
    broker.produce("k-visits", visit("ann", "10:59"), visit("bob", "11:00"))
    drain(job)
    found = read_back(broker, "k-per-hour", 3)
    window = {"start": "2024-03-01T10:00:00.000Z", "end": "2024-03-01T11:00:00.000Z"}
    assert found[0] == ("ann", json.dumps({"user": "ann", "window": window, "count": 2}, separators=(",", ":")))
    assert {(key, json.loads(value)["count"]) for key, value in found[1:]} == {("ann", 3), ("bob", 1)}


def test_keys_and_kafka_columns(broker: Broker, drain, tmp_path: Path) -> None:
    """Several key columns become a JSON key; Kafka's own columns are written unchanged, also by a per-batch job."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(visit("ann", "10:00", "/x") + "\n")
    source, sink = Files(str(tmp_path / "in"), schema=VISIT), Kafka("k-keys", servers=broker.bootstrap)
    job = Job("k", visits, reads=source, writes=sink, trigger="available-now")
    two = replace(job, writes=replace(sink, key="user,page"))
    ready = replace(job, transform=ready_made, per_batch=True)
    for number, one in enumerate([job, two, ready]):
        check_services(one)
        drain(one, tmp_path / str(number))
    value = '{"user":"ann","at":"2024-03-01T10:00:00.000Z","page":{"path":"/x"}}'
    assert read_back(broker, "k-keys", 3) == [
        (None, value),
        ('{"user":"ann","page":{"path":"/x"}}', value),
        ("ann", "/x"),
    ]


def test_several_topics_and_offsets(headwater_spark: SparkSession, broker: Broker, drain, tmp_path: Path) -> None:
    """Spark's options for topics and offsets apply; CSV and text records are decoded too."""
    make_topic(broker, "k-many-1")
    make_topic(broker, "k-many-2")
    broker.produce("k-many-1", "ann,1", "bob")
    broker.produce("k-many-2", "cat,2")
    source = Kafka(
        "",
        "user STRING, n INT",
        "csv",
        broker.bootstrap,
        options={"subscribePattern": "k-many-.*", "maxOffsetsPerTrigger": "1"},
    )
    out = Files(str(tmp_path / "out"), format="json")
    job = Job("k", visits, reads=source, writes=out, trigger="available-now")
    check_services(job)
    batches = drain(job)
    assert sum(batch.malformed for batch in batches) == 1
    assert len(batches) >= 2
    rows = headwater_spark.read.schema("user STRING, n INT").json(str(tmp_path / "out")).collect()
    assert sorted(map(tuple, rows)) == [("ann", 1), ("cat", 2)]


def test_real_time(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A stateless job in real-time mode writes records before its batch ends."""
    source, sink = make_topic(broker, "k-rt-in"), make_topic(broker, "k-rt-out")
    job = Job("k", visits, reads=source, writes=sink, mode="update", trigger="real-time 5 seconds")
    broker.produce("k-rt-in", visit("ann", "10:00"), "bad")
    stop = threading.Event()
    run = Run(job, "test", str(tmp_path / "checkpoint"))
    thread = threading.Thread(target=run_job, args=(headwater_spark, run), kwargs={"stop": stop})
    thread.start()
    try:
        assert [json.loads(value)["user"] for _, value in read_back(broker, "k-rt-out", 1)] == ["ann"]
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("options", [{"subscribe": "k-absent,k-absent-2"}, {"assign": '{"k-absent":[0]}'}])
def test_missing_topics(broker: Broker, options: dict[str, str]) -> None:
    """Topics that are named in options are checked, too."""
    source = Kafka("", VISIT, servers=broker.bootstrap, options=options)
    with pytest.raises(ServiceUnreachable, match="has no topic k-absent"):
        check_services(Job("k", visits, reads=source, writes=Console()))
