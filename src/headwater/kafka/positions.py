"""Positions in topics as users write them: the first offset to read in each partition.

``{"visits": {"0": 1000}}``, ``0:1000,1:998`` for a single topic, ``earliest``, ``latest``, or a time, which is compared
with the timestamps of the records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.kafka import clients
from headwater.kafka.clients import Cluster
from headwater.kafka.offsets import Partition, offset_ranges
from headwater.kafka.options import Connection
from headwater.kafka.topics import missing_topic

Offsets: TypeAlias = dict[str, dict[int, int]]
Ranges: TypeAlias = Mapping[Partition, tuple[int, int]]
"""The first retained and the next offset of each partition."""

_PAIR = re.compile(r"\s*(\d{1,9}):(\d{1,18})\s*")
_ENDS = ("earliest", "latest")


def resolve_position(connection: Connection, topics: Sequence[str], text: str) -> Offsets:
    """Return the first offset to read by topic and partition. Raise if the broker does not have this position."""
    given = parse_position(text, topics)
    cluster = Cluster(connection)
    known = cluster.metadata().topics
    missing = [topic for topic in topics if topic not in known]
    if missing:
        raise missing_topic(connection, missing, known)
    places = [Partition(topic, number) for topic in topics for number in sorted(known[topic].partitions)]
    ranges = offset_ranges(cluster, places)
    if isinstance(given, int):
        return _by_topic(_offsets_at(cluster, ranges, given))
    if isinstance(given, str):
        return _by_topic({place: ends[_ENDS.index(given)] for place, ends in ranges.items()})
    require_in_range(given, ranges)
    return given


def parse_position(text: str, topics: Sequence[str]) -> Offsets | str | int:
    """Return offsets, ``earliest``, ``latest``, or a time in epoch milliseconds."""
    stripped = text.strip()
    if stripped in _ENDS:
        return stripped
    if stripped.startswith("{"):
        return _from_json(stripped, topics)
    pairs = [_PAIR.fullmatch(part) for part in stripped.split(",")]
    if all(pairs) and len(topics) == 1:
        return {topics[0]: {int(pair[1]): int(pair[2]) for pair in pairs if pair}}
    try:
        return ms_from_iso(stripped)
    except ValueError:
        raise _not_a_position(text, topics) from None


def _from_json(text: str, topics: Sequence[str]) -> Offsets:
    try:
        value = json.loads(text)
        found = {str(topic): {int(number): int(offset) for number, offset in value[topic].items()} for topic in value}
    except (ValueError, TypeError, AttributeError):
        raise _not_a_position(text, topics) from None
    if set(found) != set(topics):
        raise UsageProblem(
            "bad-position",
            "the topics of the position are not those that the source reads",
            evidence={"given": ", ".join(found), "source": ", ".join(topics)},
        )
    return found


def require_in_range(offsets: Offsets, ranges: Ranges) -> None:
    """Raise ``ChangeRefused`` unless the offsets name every partition, and the broker can continue from each of them."""
    wanted = {(topic, number) for topic, numbers in offsets.items() for number in numbers}
    missing, unknown = set(ranges) - wanted, wanted - set(ranges)
    if missing or unknown:
        raise ChangeRefused(
            "bad-position",
            "the position does not name the partitions that the topic has",
            evidence={
                **({"missing": ", ".join(f"{topic} {number}" for topic, number in sorted(missing))} if missing else {}),
                **({"unknown": ", ".join(f"{topic} {number}" for topic, number in sorted(unknown))} if unknown else {}),
            },
            remedy="name the first offset to read in each partition",
        )
    for place, (first, end) in sorted(ranges.items()):
        offset = offsets[place.topic][place.number]
        if not first <= offset <= end:
            raise ChangeRefused(
                "offset-gone" if offset < first else "offset-ahead",
                f"the broker cannot continue at offset {offset} of {place.topic}, partition {place.number}",
                evidence={"first retained offset": first, "next offset": end},
                remedy="the history has to reach to an offset that the broker still has"
                if offset < first
                else "give a position that is not after the end of the topic",
            )


def _offsets_at(cluster: Cluster, ranges: Ranges, time_ms: int) -> dict[Partition, int]:
    """Return the first offset at or after a time; the end of a partition without such a record."""
    from confluent_kafka import TopicPartition  # noqa: PLC0415
    from confluent_kafka.admin import OffsetSpec  # noqa: PLC0415

    wanted = {TopicPartition(*place): OffsetSpec.for_timestamp(time_ms) for place in ranges}
    futures = cluster.client.list_offsets(wanted, request_timeout=clients.ANSWER_SECONDS)
    found: dict[Partition, int] = {}
    for place, future in futures.items():
        problem = f"cannot read the offsets of {place.topic} at {iso_from_ms(time_ms)}"
        offset = cluster.result(future, problem).offset
        partition = Partition(place.topic, place.partition)
        found[partition] = offset if offset >= 0 else ranges[partition][1]
    return found


def _by_topic(offsets: Mapping[Partition, int]) -> Offsets:
    found: Offsets = {}
    for place, offset in sorted(offsets.items()):
        found.setdefault(place.topic, {})[place.number] = offset
    return found


def _not_a_position(text: str, topics: Sequence[str]) -> UsageProblem:
    example = json.dumps({topic: {"0": 1000} for topic in topics})
    return UsageProblem(
        "bad-position",
        f"{text!r} is not a position in a topic",
        remedy=f"--at '{example}', a time such as 2026-07-01T00:00:00Z, earliest or latest",
    )
