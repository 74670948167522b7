"""Kafka sources: are the offsets that a stream needs still there, and for how long.

Retention removes a record when it is older than ``retention.ms``. The record that a stream reads next ages by one second
in each second, and becomes younger as the stream advances. A stream that covers ``speed`` seconds of records in a second
is overtaken after ``slack / (1 - speed)``, where ``slack`` is the time that the record has left; never, if it keeps up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.core.finding import Finding
from headwater.core.text import count
from headwater.guards.report import SourceReport
from headwater.kafka.offsets import Partition
from headwater.kafka.topic_facts import TopicFacts
from headwater.views.formatting import format_duration

CLOSE_MS = 24 * 3_600_000


@dataclass(frozen=True)
class KafkaNeeds:
    """What a stream needs of a Kafka source, according to its checkpoint."""

    label: str
    positions: Mapping[Partition, int]
    """The next offset to read of each partition: where the last committed batch ended."""
    planned: Mapping[Partition, int] = field(default_factory=dict)
    """Where a batch that is planned but not committed ends."""
    oldest: Mapping[Partition, int] = field(default_factory=dict)
    """Where the oldest batch in the log starts, as far as it is known."""
    oldest_batch: int | None = None
    earlier: Mapping[Partition, int] = field(default_factory=dict)
    """The positions at ``earlier_ms``, from which the speed of the stream follows."""
    earlier_ms: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The recorded id of each topic."""
    recreated: Mapping[str, int] = field(default_factory=dict)
    """Topics that were recreated after the oldest batch in the log, with the first batch that read the new one."""
    last_batch: int | None = None
    is_assigned: bool = False
    """Whether the source reads fixed partitions: Spark never reads others with the option assign."""

    @property
    def topics(self) -> list[str]:
        return sorted({place.topic for place in (*self.positions, *self.planned)})


@dataclass(frozen=True)
class RecordTimes:
    """The timestamps of the records that a stream reads next, and of those that it read next at an earlier time."""

    now: Mapping[Partition, int] = field(default_factory=dict)
    earlier: Mapping[Partition, int] = field(default_factory=dict)


def offsets_to_time(needs: KafkaNeeds, facts: Mapping[str, TopicFacts]) -> tuple[dict[Partition, int], ...]:
    """Return the offsets whose timestamps ``report_on`` needs: of the next records, and of those at an earlier time.

    Where the earlier record is removed, the oldest one takes its place, and the speed is underestimated.
    """
    now, earlier = dict[Partition, int](), dict[Partition, int]()
    for place, offset in needs.positions.items():
        first, end = _range(facts, place)
        about = facts.get(place.topic)
        if about is None or about.retention_ms is None or not first <= offset < end:
            continue
        now[place] = offset
        before = max(needs.earlier.get(place, offset), first)
        if before < offset:
            earlier[place] = before
    return now, earlier


def report_on(needs: KafkaNeeds, facts: Mapping[str, TopicFacts], times: RecordTimes, now_ms: int) -> SourceReport:
    """Return the findings on a Kafka source, and how far retention is away from it."""
    left = _time_left(needs, facts, times, now_ms)
    findings = [
        *_topics(needs, facts),
        *_positions(needs, facts),
        *_added_partitions(needs, facts),
        *_retention(left, facts),
        *_rewinds(needs, facts),
    ]
    known = [place for place in needs.positions if place.number in _ranges(facts, place.topic)]
    unread = sum(max(0, _range(facts, place)[1] - needs.positions[place]) for place in known)
    if not any(finding.severity == "error" for finding in findings):
        findings.append(_summary(needs, facts, unread, left))
    by_topic: dict[str, float] = {}
    for place, time_left in left.items():
        by_topic[place.topic] = min(time_left, by_topic.get(place.topic, math.inf))
    return SourceReport(tuple(findings), unread if len(known) == len(needs.positions) else None, by_topic)


def _topics(needs: KafkaNeeds, facts: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    for topic in needs.topics:
        if topic not in facts:
            yield Finding("error", "no-topic", f"kafka:{topic}", "does not exist: the stream cannot continue")
        elif topic in needs.topic_ids and needs.topic_ids[topic] != facts[topic].topic_id:
            message = (
                f"was deleted and recreated: batch {needs.last_batch} read the topic with id {needs.topic_ids[topic]}, "
                f"now it is {facts[topic].topic_id}; the recorded offsets refer to records that no longer exist"
            )
            yield Finding("error", "topic-recreated", f"kafka:{topic}", message)
        elif topic in needs.recreated:
            message = (
                f"was deleted and recreated before batch {needs.recreated[topic]}: a rewind to an earlier batch cannot read "
                "its records again"
            )
            yield Finding("info", "topic-recreated", f"kafka:{topic}", message)


def _positions(needs: KafkaNeeds, facts: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    for place in sorted({*needs.positions, *needs.planned}):
        if place.topic not in facts:
            continue
        path = f"kafka:{place.topic}[{place.number}]"
        if place.number not in facts[place.topic].ranges:
            yield Finding("error", "partition-missing", path, "does not exist, but the stream has read from it")
            continue
        first, end = _range(facts, place)
        position = needs.positions.get(place, first)
        needed = max(position, needs.planned.get(place, position))
        if position < first:
            message = (
                f"starts at offset {first}, but the stream reads from {position} next: {count(first - position, 'offset')} "
                "expired unread; Spark fails there, or skips them with failOnDataLoss=false"
            )
            yield Finding("error", "offsets-expired", path, message)
        if needed > end:
            message = (
                f"ends at offset {end}, but the stream has planned to read up to {needed}: the topic was recreated, or its "
                "newest records were lost"
            )
            yield Finding("error", "offsets-beyond-end", path, message)


def _added_partitions(needs: KafkaNeeds, facts: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    for topic in () if needs.is_assigned else needs.topics:
        known = {place.number for place in (*needs.positions, *needs.planned) if place.topic == topic}
        added = sorted(_ranges(facts, topic).keys() - known)
        if added:
            numbers = ", ".join(map(str, added))
            message = (
                f"has {count(len(added), 'partition')} that no batch has read yet ({numbers}): the next batch reads them from "
                "their first offset, and records of one key may now be in another partition than before"
            )
            yield Finding("info", "partitions-added", f"kafka:{topic}", message)


def _time_left(
    needs: KafkaNeeds, facts: Mapping[str, TopicFacts], times: RecordTimes, now_ms: int
) -> dict[Partition, float]:
    """Return the time until retention overtakes the stream; partitions whose retention is unknown are left out."""
    found: dict[Partition, float] = {}
    for place, position in needs.positions.items():
        about = facts.get(place.topic)
        if about is None or about.limits_problem or place.number not in about.ranges:
            continue
        first, end = about.ranges[place.number]
        if about.retention_ms is None or position >= end:
            found[place] = math.inf
        elif position < first:
            found[place] = 0.0
        elif place in times.now:
            slack = times.now[place] + about.retention_ms - now_ms
            found[place] = time_until_overtaken(slack, _speed(needs, times, place, now_ms))
    return found


def _speed(needs: KafkaNeeds, times: RecordTimes, place: Partition, now_ms: int) -> float:
    if needs.earlier_ms is None or now_ms <= needs.earlier_ms or place not in times.earlier:
        return 0.0
    return max(0.0, (times.now[place] - times.earlier[place]) / (now_ms - needs.earlier_ms))


def time_until_overtaken(slack_ms: float, speed: float) -> float:
    """Return how long a stream has until retention reaches its next record; infinite if it never does."""
    if slack_ms <= 0:
        return 0.0
    return math.inf if speed >= 1 else slack_ms / (1 - speed)


def _retention(left: Mapping[Partition, float], facts: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    close = {place: time_left for place, time_left in left.items() if time_left < CLOSE_MS}
    for place, time_left in sorted(close.items()):
        limit = format_duration(facts[place.topic].retention_ms or 0)
        if time_left > 0:
            message = (
                f"retention of {limit} overtakes the stream in {_hours(time_left)} at its present speed: unread records "
                "will be removed"
            )
        else:
            message = f"the next record is older than the retention of {limit} and may be removed at any time"
        yield Finding("warning", "retention-close", f"kafka:{place.topic}[{place.number}]", message)


def _rewinds(needs: KafkaNeeds, facts: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    expired = [
        f"{place.topic}[{place.number}]"
        for place, offset in sorted(needs.oldest.items())
        if offset < _range(facts, place)[0] and offset < needs.positions.get(place, offset)
    ]
    if expired and needs.oldest_batch is not None:
        message = (
            f"records that batch {needs.oldest_batch} or later ones read have expired ({', '.join(expired)}): a rewind to the "
            "oldest batches cannot read them again"
        )
        yield Finding("info", "input-expired", f"kafka:{needs.label}", message)


def _summary(
    needs: KafkaNeeds, facts: Mapping[str, TopicFacts], unread: int, left: Mapping[Partition, float]
) -> Finding:
    parts = [f"all offsets are available, {count(unread, 'record')} not read yet"]
    soonest = min(left.values(), default=None)
    limited = any(facts[topic].retention_ms is not None for topic in needs.topics if topic in facts)
    if soonest is not None and unread and limited:
        parts.append(
            "the stream keeps ahead of retention"
            if math.isinf(soonest)
            else f"retention overtakes the stream in {_hours(soonest)} at its present speed"
        )
    if any(facts[topic].retention_bytes is not None for topic in needs.topics if topic in facts):
        parts.append("retention.bytes may remove records earlier, which cannot be predicted")
    problems = [facts[topic].limits_problem for topic in needs.topics if topic in facts]
    if any(problems):
        parts.append(f"the retention is unknown ({next(filter(None, problems))})")
    if not needs.topic_ids:
        parts.append("no topic id is recorded, so a recreated topic cannot be recognized")
    return Finding("info", "source-checked", f"kafka:{','.join(needs.topics)}", "; ".join(parts))


def _hours(milliseconds: float) -> str:
    hours = milliseconds / 3_600_000
    return f"{hours:.1f} hours" if hours < 48 else f"{hours:.0f} hours"


def _ranges(facts: Mapping[str, TopicFacts], topic: str) -> Mapping[int, tuple[int, int]]:
    return facts[topic].ranges if topic in facts else {}


def _range(facts: Mapping[str, TopicFacts], place: Partition) -> tuple[int, int]:
    return _ranges(facts, place.topic).get(place.number, (0, 0))
