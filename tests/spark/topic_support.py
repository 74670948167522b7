"""Create, fill and read topics in tests, without a process for each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_support import Broker

Message = tuple[int, str | None, str | None, Any]


@dataclass(frozen=True)
class Topics:
    """All topics of a broker: the offset range of every partition, and the records of topics that are not internal."""

    ends: dict[tuple[str, int], tuple[int, int]]
    contents: dict[tuple[str, int], list[Message]]


def make(broker: Broker, name: str, partitions: int = 1) -> str:
    """Create a topic and return its URI, once all partitions have a leader."""
    admin = AdminClient(broker.connection.client_settings())
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(120)
    for _ in range(600):  # the broker confirms a new topic before its partitions have leaders
        known = admin.list_topics(name, timeout=120).topics[name].partitions
        if len(known) == partitions and all(one.leader >= 0 for one in known.values()):
            return broker.uri(name)
        admin.poll(0.1)
    raise AssertionError(f"{name} has no leader")


def send(broker: Broker, topic: str, values: Sequence[str], *, partitions: int = 1) -> None:
    """Write value number n to partition n modulo the number of partitions."""
    producer = Producer(broker.connection.client_settings())
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(120) == 0


def snapshot(broker: Broker) -> Topics:
    """Return everything that the broker holds."""
    consumer = _consumer(broker, "snapshot")
    try:
        found = consumer.list_topics(timeout=120).topics
        places = [(name, number) for name, topic in sorted(found.items()) for number in topic.partitions]
        ends = {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=120) for place in places}
        contents = {place: _messages(consumer, place, ends[place]) for place in places if not place[0].startswith("__")}
    finally:
        consumer.close()
    return Topics(ends, contents)


def values(broker: Broker, topic: str) -> list[tuple[str | None, str | None]]:
    """Return keys and values of a topic with one partition, in order."""
    consumer = _consumer(broker, "values")
    try:
        ends = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120)
        return [(key, value) for _, key, value, _ in _messages(consumer, (topic, 0), ends)]
    finally:
        consumer.close()


def _consumer(broker: Broker, group: str) -> Consumer:
    return Consumer({**broker.connection.client_settings(), "group.id": group, "enable.auto.commit": False})


def _messages(consumer: Consumer, place: tuple[str, int], ends: tuple[int, int]) -> list[Message]:
    found: list[Message] = []
    if ends[0] == ends[1]:
        return found
    consumer.assign([TopicPartition(*place, ends[0])])
    while not found or found[-1][0] < ends[1] - 1:
        message = consumer.poll(120)
        assert message is not None, f"{place} has fewer records than its offsets promise"
        assert message.error() is None
        key, value = message.key(), message.value()
        texts = [None if one is None else one.decode("utf-8", "replace") for one in (key, value)]
        found.append((message.offset(), texts[0], texts[1], message.timestamp()))
    consumer.unassign()
    return found
