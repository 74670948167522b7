"""What a broker knows about topics: their ids, the offsets that it retains, and their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.core.errors import ServiceUnreachable
from headwater.kafka import clients
from headwater.kafka.clients import Cluster
from headwater.kafka.offsets import Partition, offset_ranges
from headwater.kafka.retention import topic_limits


@dataclass(frozen=True)
class TopicFacts:
    """A topic. ``ranges`` has the first retained and the next offset of each partition; a limit of None means no limit."""

    topic_id: str
    ranges: Mapping[int, tuple[int, int]]
    retention_ms: int | None = None
    retention_bytes: int | None = None
    limits_problem: str | None = None
    """Why the limits are unknown: reading them takes a permission of its own."""


def topic_ids(cluster: Cluster, topics: Iterable[str]) -> dict[str, str]:
    """Return the id of each topic; topics that do not exist are left out. A recreated topic has another id."""
    from confluent_kafka import TopicCollection  # noqa: PLC0415

    present = cluster.metadata().topics
    wanted = sorted(topic for topic in set(topics) if topic in present)
    if not wanted:
        return {}
    futures = cluster.client.describe_topics(TopicCollection(wanted), request_timeout=clients.ANSWER_SECONDS)
    return {
        topic: str(cluster.result(future, f"cannot read the id of {topic}").topic_id)
        for topic, future in futures.items()
    }


def topic_facts(cluster: Cluster, topics: Iterable[str]) -> dict[str, TopicFacts]:
    """Return what the broker knows about each topic; topics that do not exist are left out."""
    ids = topic_ids(cluster, topics)
    partitions = {topic: sorted(about.partitions) for topic, about in cluster.metadata().topics.items() if topic in ids}
    ranges = offset_ranges(
        cluster, (Partition(topic, number) for topic, numbers in partitions.items() for number in numbers)
    )
    found = {}
    for topic, numbers in partitions.items():
        limits, problem = dict[str, int | None](), None
        try:
            limits = topic_limits(cluster, topic)
        except ServiceUnreachable as error:
            problem = error.evidence.get("reason", error.problem)
        found[topic] = TopicFacts(
            ids[topic],
            {number: ranges[Partition(topic, number)] for number in numbers},
            limits.get("retention.ms"),
            limits.get("retention.bytes"),
            problem,
        )
    return found
