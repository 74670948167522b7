"""Offsets by time, as a real broker answers."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer

from broker_support import Broker, run_here
from headwater.kafka.offsets import offsets_at


def test_offsets_at_a_time(broker: Broker) -> None:
    """The first record at or after the time counts, in each partition; after the last record it is the next offset."""
    topic = f"times-{uuid.uuid4().hex[:8]}"
    assert run_here("topics", "create", topic, "--partitions", 2, *broker.arguments).returncode == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, times in enumerate([(1000, 2000, 2000, 3000), (2500,)]):
        for at in times:
            producer.produce(topic, b"x", partition=partition, timestamp=at)
    assert producer.flush(60) == 0
    uri = broker.uri(topic)
    expected = {0: (0, 0), 1000: (0, 0), 1001: (1, 0), 2000: (1, 0), 2001: (3, 0), 2501: (3, 1), 3001: (4, 1)}
    for at, (first, second) in expected.items():
        assert offsets_at(uri, [topic], at) == {topic: {0: first, 1: second}}, at
    assert offsets_at(uri, ["no-such-topic"], 0) == {}
