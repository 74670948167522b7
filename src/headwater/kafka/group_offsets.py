"""Offsets of a consumer group, set by a program that is not a member of it, and read back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.kafka import clients
from headwater.kafka.clients import Cluster
from headwater.kafka.offsets import Partition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# The first request for any group makes the broker create the topic of the groups, which takes a moment.
COORDINATOR_ERRORS = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
COORDINATOR_SECONDS, PAUSE_SECONDS = 30.0, 0.2


def commit_offsets(cluster: Cluster, group: str, positions: Mapping[Partition, int]) -> None:
    """Set the next offset of each partition. Kafka refuses it while a consumer is a member of the group."""
    from confluent_kafka import KafkaException  # noqa: PLC0415

    deadline = time.monotonic() + COORDINATOR_SECONDS
    while error := _error_of_commit(cluster, group, positions):
        if error.name() not in COORDINATOR_ERRORS or time.monotonic() >= deadline:
            raise clients.refused(cluster.connection, _problem(group), KafkaException(error))
        time.sleep(PAUSE_SECONDS)


def _error_of_commit(cluster: Cluster, group: str, positions: Mapping[Partition, int]) -> KafkaError | None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition  # noqa: PLC0415

    if not positions:
        return None
    places = [TopicPartition(place.topic, place.number, offset) for place, offset in positions.items()]
    request = ConsumerGroupTopicPartitions(group, places)
    future = cluster.client.alter_consumer_group_offsets([request], request_timeout=clients.ANSWER_SECONDS)[group]
    cluster.client.poll(0)
    try:
        done = future.result(timeout=clients.REQUEST_SECONDS)
    except KafkaException as failure:
        return failure.args[0]
    return next((place.error for place in done.topic_partitions if place.error is not None), None)


def _problem(group: str) -> str:
    return f"cannot commit offsets to the consumer group {group}"


def group_offsets(cluster: Cluster, group: str) -> dict[Partition, int]:
    """Return the committed offsets of a consumer group by partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: PLC0415

    request = ConsumerGroupTopicPartitions(group)
    future = cluster.client.list_consumer_group_offsets([request], request_timeout=clients.ANSWER_SECONDS)[group]
    found = cluster.result(future, f"cannot read the offsets of the consumer group {group}")
    return {Partition(place.topic, place.partition): place.offset for place in found.topic_partitions}
