"""How long a broker retains the records from given offsets on.

Kafka removes closed segments, each when its newest record is older than ``retention.ms``, or when a partition exceeds
``retention.bytes``. A record is therefore safe until its own timestamp plus ``retention.ms``, and often longer. When a
limit on the size takes effect depends on what is written in future.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from headwater.kafka import clients
from headwater.kafka.clients import Cluster
from headwater.kafka.offsets import Partition, offset_ranges
from headwater.kafka.options import Connection

READ_SECONDS = 4.0


@dataclass(frozen=True)
class Retention:
    """What is known of a source's retention. ``until_ms`` is None if no record expires by time, or if that is unknown."""

    until_ms: int | None
    limit_bytes: int | None
    """The smallest ``retention.bytes`` of the topics, which applies to each partition; None if there is none."""


def retention_from(source: str, starts: Mapping[tuple[str, int], int]) -> Retention:
    """Return how long a broker keeps the records from these offsets on, by topic and partition.

    ``source`` is the ``kafka://`` URI of a job's source. Raises ``HeadwaterError`` if the broker cannot be queried.
    """
    connection = Connection.from_uri(source)
    cluster = Cluster(connection)
    known = cluster.metadata().topics
    wanted = {
        Partition(*place): offset
        for place, offset in starts.items()
        if place[0] in known and place[1] in known[place[0]].partitions
    }
    limits = {topic: topic_limits(cluster, topic) for topic in {place.topic for place in wanted}}
    ends = offset_ranges(cluster, wanted)
    unread = {place: max(offset, ends[place][0]) for place, offset in wanted.items() if offset < ends[place][1]}
    timed = {place: offset for place, offset in unread.items() if limits[place.topic].get("retention.ms") is not None}
    stamps = timestamps_at(connection, timed)
    until = [stamp + (limits[place.topic]["retention.ms"] or 0) for place, stamp in stamps.items()]
    sizes = [size for place in unread if (size := limits[place.topic].get("retention.bytes")) is not None]
    return Retention(min(until, default=None), min(sizes, default=None))


def topic_limits(cluster: Cluster, topic: str) -> dict[str, int | None]:
    """Return the limits of a topic that removes old records; -1 means no limit."""
    from confluent_kafka.admin import ConfigResource, ResourceType  # noqa: PLC0415

    resource = ConfigResource(ResourceType.TOPIC, topic)
    future = cluster.client.describe_configs([resource], request_timeout=clients.ANSWER_SECONDS)[resource]
    settings = cluster.result(future, f"cannot read the settings of {topic}")
    if "delete" not in str(settings["cleanup.policy"].value):
        return {}
    found = {}
    for name in ("retention.ms", "retention.bytes"):
        number = int(settings[name].value)
        found[name] = number if number >= 0 else None
    return found


def timestamps_at(connection: Connection, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the timestamp of the record at each offset; partitions whose record does not arrive in time are left out."""
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415

    if not offsets:
        return {}
    group: dict[str, object] = {
        "group.id": f"headwater-{uuid.uuid4()}",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
    }
    client, found = clients.consumer(connection, group), dict[Partition, int]()
    try:
        client.assign([TopicPartition(place.topic, place.number, offset) for place, offset in offsets.items()])
        deadline = time.monotonic() + READ_SECONDS
        while len(found) < len(offsets) and time.monotonic() < deadline:
            with suppress(KafkaException):
                for message in client.consume(100, timeout=0.2):
                    kind, stamp = message.timestamp() if not message.error() else (0, 0)
                    if kind:
                        found.setdefault(Partition(message.topic(), message.partition()), stamp)
    finally:
        client.close()
    return found
