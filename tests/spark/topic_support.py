"""Topics for tests: made, filled and read whole without a process for each."""

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
    """All topics of a broker: ends of every partition, and what is in those that are not Kafka's own."""

    ends: dict[tuple[str, int], tuple[int, int]]
    contents: dict[tuple[str, int], list[Message]]


def make(broker: Broker, name: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(30)
    for _ in range(600):  # the broker says that it is made before it tells everybody who leads it
        told = admin.list_topics(name, timeout=30).topics[name].partitions
        if len(told) == partitions and all(one.leader >= 0 for one in told.values()):
            return f"kafka://{broker.bootstrap}/{name}"
        admin.poll(0.1)
    raise AssertionError(f"{name} has no leader")


def send(broker: Broker, topic: str, values: Sequence[str], *, partitions: int = 1) -> None:
    """Value number n goes to partition n modulo the number of partitions."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(30) == 0


def snapshot(broker: Broker) -> Topics:
    """Everything that the broker holds now."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "snapshot", "enable.auto.commit": False})
    try:
        found = consumer.list_topics(timeout=30).topics
        places = [(name, number) for name, topic in sorted(found.items()) for number in topic.partitions]
        ends = {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=30) for place in places}
        contents = {place: _whole(consumer, place, ends[place]) for place in places if not place[0].startswith("__")}
    finally:
        consumer.close()
    return Topics(ends, contents)


def values(broker: Broker, topic: str) -> list[tuple[str | None, str | None]]:
    """Keys and values of a topic of one partition, in their order."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "values", "enable.auto.commit": False})
    try:
        ends = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return [(key, value) for _, key, value, _ in _whole(consumer, (topic, 0), ends)]
    finally:
        consumer.close()


def _whole(consumer: Consumer, place: tuple[str, int], ends: tuple[int, int]) -> list[Message]:
    found: list[Message] = []
    if ends[0] == ends[1]:
        return found
    consumer.assign([TopicPartition(*place, ends[0])])
    while not found or found[-1][0] < ends[1] - 1:
        message = consumer.poll(30)
        assert message is not None, f"{place} holds less than it says"
        assert message.error() is None
        key, value = message.key(), message.value()
        texts = [None if one is None else one.decode("utf-8", "replace") for one in (key, value)]
        found.append((message.offset(), texts[0], texts[1], message.timestamp()))
    consumer.unassign()
    return found
