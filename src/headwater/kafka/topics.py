"""Topics of a cluster: list, find, create and delete them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.core.errors import ServiceUnreachable, UsageProblem
from headwater.kafka import clients
from headwater.kafka.clients import Cluster
from headwater.kafka.offsets import Partition, offset_ranges
from headwater.kafka.options import Connection

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
SHOWN_NAMES = 10
AUTO_CREATE_SECONDS = 5.0
KNOWN_SECONDS = 10.0


@dataclass(frozen=True)
class Topic:
    """A topic, with the first retained offset and the next offset of each partition."""

    name: str
    offsets: dict[int, tuple[int, int]]

    @property
    def records(self) -> int:
        """The number of records, exact unless the topic is compacted or written in transactions."""
        return sum(end - beginning for beginning, end in self.offsets.values())

    def as_dict(self) -> dict[str, object]:
        """Return the topic in the form that ``--json`` prints."""
        return {
            "topic": self.name,
            "partitions": len(self.offsets),
            "records": self.records,
            "offsets": {str(partition): list(ends) for partition, ends in self.offsets.items()},
        }


def list_topics(connection: Connection, *, internal: bool = False) -> list[Topic]:
    """Return all topics by name; ``internal`` includes Kafka's own, which start with two underscores."""
    cluster = Cluster(connection)
    found = cluster.metadata().topics
    names = sorted(name for name in found if internal or not name.startswith("__"))
    return _with_offsets(cluster, {name: sorted(found[name].partitions) for name in names})


def list_partitions(connection: Connection) -> list[Partition]:
    """Return the partitions of all topics, without their offsets."""
    found = Cluster(connection).metadata().topics
    return [Partition(name, number) for name in sorted(found) for number in sorted(found[name].partitions)]


def find_topic(connection: Connection, name: str) -> Topic:
    """Return a topic; raise ``ServiceUnreachable`` if it does not exist."""
    cluster = Cluster(connection)
    found = cluster.metadata().topics
    if name not in found:
        raise missing_topic(connection, [name], found)
    return _with_offsets(cluster, {name: sorted(found[name].partitions)})[0]


def create_topic(connection: Connection, name: str, partitions: int = 1) -> None:
    """Create a topic; raise ``UsageProblem`` if it exists or if Kafka does not allow its name."""
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    _require_legal(name)
    cluster = Cluster(connection)
    if name in cluster.metadata().topics:
        raise UsageProblem(
            "topic-exists",
            f"topic {name} already exists",
            evidence={"broker": connection.servers},
            remedy=f"headwater topics delete {name}, or choose another name",
        )
    cluster.result(cluster.client.create_topics([NewTopic(name, partitions)])[name], f"cannot create topic {name}")
    _wait_until_known(cluster, name, exists=True)


def ensure_topic(connection: Connection, name: str) -> tuple[int, bool]:
    """Return the number of partitions of a topic, and whether it had to be created."""
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    _require_legal(name)
    cluster = Cluster(connection)
    found = cluster.metadata().topics
    if name in found:
        return len(found[name].partitions), False
    created = cluster.client.create_topics([NewTopic(name, -1, -1)])[name]
    cluster.result(created, f"cannot create topic {name}", ignore="TOPIC_ALREADY_EXISTS")
    _wait_until_known(cluster, name, exists=True)
    return len(find_topic(connection, name).offsets), True


def require_topics(connection: Connection, names: Iterable[str]) -> None:
    """Raise ``ServiceUnreachable`` if the broker does not answer or lacks one of the topics."""
    found = Cluster(connection).metadata().topics
    missing = [name for name in names if name not in found]
    if missing:
        raise missing_topic(connection, missing, found)


def require_writable_topic(connection: Connection, name: str) -> None:
    """Raise ``ServiceUnreachable`` if the topic does not exist and the broker does not create it on first use."""
    from confluent_kafka import KafkaException  # noqa: PLC0415

    found = Cluster(connection).metadata().topics
    if name in found:
        return
    # A producer's request for metadata creates the topic, where the broker is set up to do so.
    producer = clients.producer(connection, {"allow.auto.create.topics": True})
    deadline = time.monotonic() + AUTO_CREATE_SECONDS
    while time.monotonic() < deadline:
        try:
            if producer.list_topics(name, timeout=AUTO_CREATE_SECONDS).topics[name].error is None:
                return
        except KafkaException:
            continue
        time.sleep(0.1)
    raise missing_topic(connection, [name], found)


def delete_topic(connection: Connection, name: str) -> None:
    """Delete a topic with all its records."""
    find_topic(connection, name)
    cluster = Cluster(connection)
    cluster.result(cluster.client.delete_topics([name])[name], f"cannot delete topic {name}")
    _wait_until_known(cluster, name, exists=False)


def _wait_until_known(cluster: Cluster, name: str, *, exists: bool) -> None:
    """Wait for a while until brokers know that a topic was created or deleted: the controller answers before they do."""
    deadline = time.monotonic() + KNOWN_SECONDS
    while time.monotonic() < deadline:
        found = cluster.metadata().topics.get(name)
        has_leaders = found is not None and all(one.leader >= 0 for one in found.partitions.values())
        if has_leaders if exists else found is None:
            return
        time.sleep(0.05)


def missing_topic(connection: Connection, missing: Sequence[str], known: Iterable[str]) -> ServiceUnreachable:
    """Return the error for topics that the broker does not have."""
    others = sorted(other for other in known if not other.startswith("__"))
    shown = ", ".join(others[:SHOWN_NAMES]) + (", ..." if len(others) > SHOWN_NAMES else "")
    return ServiceUnreachable(
        "no-topic",
        f"the broker at {connection.servers} has no topic {', '.join(missing)}",
        evidence={"topics": shown or "none"},
        remedy=f"headwater topics create {missing[0]} --bootstrap {connection.servers}",
    )


def _with_offsets(cluster: Cluster, partitions: dict[str, list[int]]) -> list[Topic]:
    places = [Partition(name, number) for name, numbers in partitions.items() for number in numbers]
    ranges = offset_ranges(cluster, places)
    return [
        Topic(name, {number: ranges[Partition(name, number)] for number in numbers})
        for name, numbers in partitions.items()
    ]


def _require_legal(name: str) -> None:
    if not LEGAL_NAME.fullmatch(name) or name in {".", ".."}:
        raise UsageProblem(
            "bad-topic",
            f"{name!r} is not a valid topic name",
            evidence={"allowed": "letters, digits, '.', '_' and '-', at most 249 of them"},
            remedy="headwater topics create visits",
        )
