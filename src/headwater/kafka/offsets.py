"""Offsets that a broker retains: the first and the next offset of each partition, and the lag behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.kafka import clients
from headwater.kafka.clients import Cluster
from headwater.kafka.options import Connection


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


def earliest_offsets(source: str, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return the first retained offset by topic and partition; topics that do not exist are left out.

    ``source`` is the ``kafka://`` URI of a job's source. Raises ``HeadwaterError`` if the broker cannot be queried.
    """
    cluster = Cluster(Connection.from_uri(source))
    known = cluster.metadata().topics
    wanted = [topic for topic in topics if topic in known and known[topic].error is None]
    places = [Partition(topic, number) for topic in wanted for number in known[topic].partitions]
    earliest = _offsets(cluster, places, "earliest")
    return {
        topic: {number: earliest[Partition(topic, number)] for number in known[topic].partitions} for topic in wanted
    }


def offsets_at(source: str, topics: Iterable[str], at_ms: int) -> dict[str, dict[int, int]]:
    """Return the first offset at or after a time by topic and partition; the next offset if there is none.

    Topics that do not exist are left out. Raises ``HeadwaterError`` if the broker cannot be queried.
    """
    cluster = Cluster(Connection.from_uri(source))
    known = cluster.metadata().topics
    places = [
        Partition(topic, number)
        for topic in topics
        if topic in known and known[topic].error is None
        for number in known[topic].partitions
    ]
    later, ends = _offsets(cluster, places, at_ms), end_offsets(cluster, places)
    found: dict[str, dict[int, int]] = {}
    for place in places:
        offset = later[place]
        found.setdefault(place.topic, {})[place.number] = ends[place] if offset < 0 else offset
    return found


def offset_ranges(cluster: Cluster, places: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
    """Return the first retained and the next offset of each partition."""
    places = list(places)
    earliest, latest = _offsets(cluster, places, "earliest"), _offsets(cluster, places, "latest")
    return {place: (earliest[place], latest[place]) for place in places}


def end_offsets(cluster: Cluster, places: Iterable[Partition]) -> dict[Partition, int]:
    """Return the next offset of each partition."""
    return _offsets(cluster, places, "latest")


def lag(ends: Mapping[Partition, int], positions: Mapping[Partition, int]) -> int:
    """Return the number of records from the given positions to the ends; a position is the next offset to read."""
    return sum(max(0, ends[place] - position) for place, position in positions.items() if place in ends)


def _offsets(cluster: Cluster, places: Iterable[Partition], which: str | int) -> dict[Partition, int]:
    from confluent_kafka import TopicPartition  # noqa: PLC0415
    from confluent_kafka.admin import OffsetSpec  # noqa: PLC0415

    if isinstance(which, int):
        spec = OffsetSpec.for_timestamp(which)
    else:
        spec = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()
    wanted = {TopicPartition(*place): spec for place in places}
    if not wanted:
        return {}
    futures = cluster.client.list_offsets(wanted, request_timeout=clients.ANSWER_SECONDS)
    return {
        Partition(place.topic, place.partition): cluster.result(
            future, f"cannot read the offsets of {place.topic}"
        ).offset
        for place, future in futures.items()
    }
