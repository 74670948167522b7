"""Findings on Kafka sources, from what a checkpoint needs and what a broker holds."""

from __future__ import annotations

import math

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.history import History
from headwater.checkpoint.source_offsets import kafka_partitions, offset_value
from headwater.guards.check import kafka_needs
from headwater.guards.kafka_sources import KafkaNeeds, RecordTimes, offsets_to_time, report_on, time_until_overtaken
from headwater.guards.report import SourceReport
from headwater.kafka.offsets import Partition
from headwater.kafka.topic_facts import TopicFacts

HOUR = 3_600_000
NOW = 1_000 * HOUR
P0, P1 = Partition("visits", 0), Partition("visits", 1)


def facts(*ranges: tuple[int, int], topic_id: str = "one", retention_ms: int | None = None) -> dict[str, TopicFacts]:
    return {"visits": TopicFacts(topic_id, dict(enumerate(ranges)), retention_ms)}


def needs(**values: object) -> KafkaNeeds:
    given = {"positions": {P0: 10}, "topic_ids": {"visits": "one"}, "last_batch": 4, **values}
    return KafkaNeeds("source 0", **given)  # type: ignore[arg-type]


def codes(report: SourceReport) -> list[tuple[str, str, str]]:
    return [(finding.severity, finding.code, finding.path) for finding in report.findings]


def test_everything_is_there() -> None:
    """The number of unread records is reported, and no problem."""
    report = report_on(needs(), facts((0, 25)), RecordTimes(), NOW)
    assert codes(report) == [("info", "source-checked", "kafka:visits")]
    assert report.findings[0].message == "all offsets are available, 15 records not read yet"
    assert report.unread == 15


@pytest.mark.parametrize(
    ("given", "found", "expected"),
    [
        ({}, {}, ("error", "no-topic", "kafka:visits")),
        ({"topic_ids": {"visits": "two"}}, facts((0, 25)), ("error", "topic-recreated", "kafka:visits")),
        ({"positions": {P0: 10, P1: 3}}, facts((0, 25)), ("error", "partition-missing", "kafka:visits[1]")),
        ({}, facts((11, 25)), ("error", "offsets-expired", "kafka:visits[0]")),
        ({}, facts((0, 9)), ("error", "offsets-beyond-end", "kafka:visits[0]")),
        ({"planned": {P0: 30}}, facts((0, 25)), ("error", "offsets-beyond-end", "kafka:visits[0]")),
        ({}, facts((0, 25), (0, 3)), ("info", "partitions-added", "kafka:visits")),
        ({"recreated": {"visits": 3}}, facts((0, 25)), ("info", "topic-recreated", "kafka:visits")),
        ({"oldest": {P0: 2}, "oldest_batch": 0}, facts((5, 25)), ("info", "input-expired", "kafka:source 0")),
    ],
)
def test_each_problem(given: dict[str, object], found: dict[str, TopicFacts], expected: tuple[str, str, str]) -> None:
    """Each problem gives exactly one finding, beside the summary of a source without errors."""
    report = report_on(needs(**given), found, RecordTimes(), NOW)
    assert [one for one in codes(report) if one[1] != "source-checked"] == [expected]
    assert any(one[1] == "source-checked" for one in codes(report)) == (expected[0] == "info")


def test_assigned_partitions() -> None:
    """A source that names its partitions does not read those that are added to the topic."""
    report = report_on(needs(is_assigned=True), facts((0, 25), (0, 3)), RecordTimes(), NOW)
    assert [one[1] for one in codes(report)] == ["source-checked"]


def test_planned_offsets_that_are_there() -> None:
    """A batch that is planned and not committed needs its own end offsets, which are there."""
    assert codes(report_on(needs(planned={P0: 25}), facts((0, 25)), RecordTimes(), NOW))[0][1] == "source-checked"


@pytest.mark.parametrize(
    ("slack", "speed", "expected"),
    [(10.0, 0.0, 10.0), (10.0, 0.5, 20.0), (10.0, 1.0, math.inf), (10.0, 3.0, math.inf), (-1.0, 3.0, 0.0)],
)
def test_time_until_overtaken(slack: float, speed: float, expected: float) -> None:
    """A stream at half the speed of time has twice as long as one that stands still; one that keeps up has forever."""
    assert time_until_overtaken(slack, speed) == expected


def test_retention_overtakes_a_slow_stream() -> None:
    """In an hour the stream covers half an hour of records; ten hours of slack last for twenty."""
    slow = needs(earlier={P0: 4}, earlier_ms=NOW - HOUR)
    held = facts((0, 25), retention_ms=48 * HOUR)
    assert offsets_to_time(slow, held) == ({P0: 10}, {P0: 4})
    times = RecordTimes({P0: NOW - 38 * HOUR}, {P0: NOW - 38 * HOUR - HOUR // 2})
    report = report_on(slow, held, times, NOW)
    assert report.overtaken_in_ms == {"visits": pytest.approx(20 * HOUR)}
    assert codes(report)[0] == ("warning", "retention-close", "kafka:visits[0]")
    assert "retention of 2 d overtakes the stream in 20.0 hours at its present speed" in report.findings[0].message


def test_a_stream_that_keeps_up_or_has_read_everything() -> None:
    """A stream that reads faster than time passes, or that has nothing to read, is never overtaken."""
    held = facts((0, 25), retention_ms=48 * HOUR)
    fast = needs(earlier={P0: 4}, earlier_ms=NOW - HOUR)
    report = report_on(fast, held, RecordTimes({P0: NOW - 38 * HOUR}, {P0: NOW - 40 * HOUR}), NOW)
    assert report.soonest_ms == math.inf
    assert "the stream keeps ahead of retention" in report.findings[0].message
    assert report_on(needs(positions={P0: 25}), held, RecordTimes(), NOW).soonest_ms == math.inf
    assert report_on(needs(), facts((0, 25)), RecordTimes(), NOW).soonest_ms == math.inf  # no limit


def test_retention_that_may_not_be_read() -> None:
    """Offsets are checked although the limits of the topic are not known, and the summary states why."""
    refused = {"visits": TopicFacts("one", {0: (0, 25)}, limits_problem="not authorized")}
    report = report_on(needs(), refused, RecordTimes(), NOW)
    assert report.findings[0].message.endswith("; the retention is unknown (not authorized)")
    assert report.soonest_ms is None


def test_a_record_past_its_retention() -> None:
    """A record that is older than the retention is still there as long as its segment is."""
    report = report_on(needs(), facts((0, 25), retention_ms=HOUR), RecordTimes({P0: NOW - 2 * HOUR}), NOW)
    assert report.soonest_ms == 0
    assert "may be removed at any time" in report.findings[0].message


def test_the_earlier_record_has_expired() -> None:
    """The oldest record takes the place of one that has expired, so that the speed is underestimated."""
    slow = needs(earlier={P0: 4}, earlier_ms=NOW - HOUR)
    assert offsets_to_time(slow, facts((7, 25), retention_ms=HOUR)) == ({P0: 10}, {P0: 7})


def test_batch_of_asynchronous_progress_tracking() -> None:
    """A batch starts where the newest recorded one before it ends, which need not be the one with the number before."""
    files = as_memory_files("kafka-async")
    history = History(files)
    (identity,) = history.logs.identities.values()
    *_, before, planned = history.logs.offsets.ids
    assert before < planned - 1
    ends = kafka_needs(history, identity, NOW).positions
    files.remove(f"commits/{planned}")
    pending = kafka_needs(History(files), identity, NOW)
    entry = history.logs.offsets.read(before)
    assert pending.planned == ends
    assert {(one.topic, one.number): end for one, end in pending.positions.items()} == kafka_partitions(
        offset_value(entry.sources[0].text)
    )
