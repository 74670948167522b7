"""Which records of a topic were dropped, for each of Spark's rules, compared with an independent computation.

The records are in two partitions, four in each batch. The watermark of a batch follows from the records before it, and
a batch drops records by the watermark of the previous batch. The computation below uses nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from broker_support import Broker
from headwater import Console, Job, Kafka
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import ChangeRefused
from headwater.spark.dropped import DroppedRecords
from headwater.spark.session import temporary_settings
from spark import topic_support as topics
from spark.draining import drain_source

TOPIC = "late-visits"
VISIT = "user STRING, at TIMESTAMP"
DELAY = timedelta(minutes=10)
WINDOW = timedelta(minutes=5)
GAP = timedelta(minutes=7)
TIMES = [
    "10:00 10:01 10:02 10:03",
    "10:40 10:00 10:41 10:39",
    "10:42 10:31 10:20 10:44",
    "10:00 10:27 10:33 10:45",
    "10:26 10:27 10:28 10:29",
    "11:30 10:34 10:32 10:35",
    "10:36 10:50 10:31 10:30",
    "11:19 11:21 11:16 11:12",
]
MALFORMED = {(4, 1): "nonsense", (6, 2): '{"user": "u", "at": "tomorrow"}'}


def instant(text: str) -> datetime:
    return datetime.fromisoformat(f"2024-03-01T{text}:00+00:00")


def batches_of_times() -> list[list[datetime | None]]:
    return [
        [None if (batch, index) in MALFORMED else instant(text) for index, text in enumerate(line.split())]
        for batch, line in enumerate(TIMES)
    ]


def lines() -> list[str]:
    return [
        MALFORMED.get((batch, index)) or json.dumps({"user": f"u{index}", "at": f"2024-03-01T{text}:00Z"})
        for batch, line in enumerate(TIMES)
        for index, text in enumerate(line.split())
    ]


def watermarks(delay: timedelta = DELAY) -> list[datetime | None]:
    """Return the watermark of each batch."""
    result: list[datetime | None] = [None]
    for times in batches_of_times():
        latest = max(at for at in times if at) - delay
        result.append(latest if result[-1] is None else max(result[-1], latest))
    return result


def expected(compared: Callable[[datetime], datetime]) -> dict[int, list[tuple[int, int]]]:
    """Return partition and offset of the late records of each batch."""
    result: dict[int, list[tuple[int, int]]] = {}
    for batch, times in enumerate(batches_of_times()):
        watermark = watermarks()[batch - 1] if batch else None
        late = [index for index, at in enumerate(times) if at and watermark and compared(at) <= watermark]
        result[batch] = sorted((index % 2, batch * 2 + index // 2) for index in late)
    return result


def window_end(at: datetime) -> datetime:
    return at - timedelta(minutes=at.minute % 5) + WINDOW


def counting() -> StatefulProcessor:
    """Return a processor. The class is local, so that it is pickled by value: workers cannot import this module."""

    class Counting(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "n BIGINT")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            (before,) = self.seen.get() or (0,)
            self.seen.update((before + sum(1 for _ in rows),))
            yield Row(user=key[0], n=self.seen.get()[0])

    return Counting()


def counting_in_pandas() -> Callable[..., Iterator[pd.DataFrame]]:
    def counted(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((seen,))
        yield pd.DataFrame({"user": [key[0]], "n": [seen]})

    return counted


def with_watermark(visits: DataFrame) -> DataFrame:
    return visits.withWatermark("at", "10 minutes")


def windows(visits: DataFrame) -> DataFrame:
    return with_watermark(visits).groupBy(F.upper("user"), F.window("at", "5 minutes")).count()


def sliding(visits: DataFrame) -> DataFrame:
    return with_watermark(visits).groupBy(F.window("at", "10 minutes", "5 minutes")).count()


def sessions(visits: DataFrame) -> DataFrame:
    return with_watermark(visits).groupBy("user", F.session_window("at", "7 minutes")).count()


def distinct_times(visits: DataFrame) -> DataFrame:
    return with_watermark(visits).dropDuplicates(["user", "at"])


def distinct_users(visits: DataFrame) -> DataFrame:
    return with_watermark(visits).dropDuplicates(["user"])


def within(visits: DataFrame) -> DataFrame:
    return with_watermark(visits).dropDuplicatesWithinWatermark(["user"])


def event_timers(visits: DataFrame) -> DataFrame:
    return (
        with_watermark(visits)
        .groupBy("user")
        .transformWithState(counting(), "user STRING, n BIGINT", "Update", "EventTime")
    )


def no_timers(visits: DataFrame) -> DataFrame:
    return (
        with_watermark(visits).groupBy("user").transformWithState(counting(), "user STRING, n BIGINT", "Update", "None")
    )


def event_timeout(visits: DataFrame) -> DataFrame:
    grouped = with_watermark(visits).groupBy("user")
    return grouped.applyInPandasWithState(
        counting_in_pandas(), "user STRING, n BIGINT", "n BIGINT", "update", "EventTimeTimeout"
    )


def clock_timeout(visits: DataFrame) -> DataFrame:
    grouped = with_watermark(visits).groupBy("user")
    return grouped.applyInPandasWithState(
        counting_in_pandas(), "user STRING, n BIGINT", "n BIGINT", "update", "ProcessingTimeTimeout"
    )


def dedup_then_windows(visits: DataFrame) -> DataFrame:
    return with_watermark(visits).dropDuplicates(["user", "at"]).groupBy(F.window("at", "5 minutes")).count()


def late_dedup_then_windows(visits: DataFrame) -> DataFrame:
    return with_watermark(visits.dropDuplicates(["user", "at"])).groupBy(F.window("at", "5 minutes")).count()


def windows_of_windows(visits: DataFrame) -> DataFrame:
    five = with_watermark(visits).groupBy("user", F.window("at", "5 minutes")).count()
    return five.groupBy(F.window(F.window_time("window"), "10 minutes")).agg(F.sum("count").alias("n"))


def joined(visits: DataFrame) -> DataFrame:
    cities = visits.sparkSession.createDataFrame([(f"u{n}", "Oslo") for n in range(4)], "user STRING, city STRING")
    cities = cities.groupBy("user").agg(F.max("city").alias("city"))
    return (
        with_watermark(visits)
        .join(cities, "user")
        .select("city", "at")
        .groupBy("city", F.window("at", "5 minutes"))
        .count()
    )


@dataclass(frozen=True)
class Case:
    """A job and its rule. With ``counts``, Spark's own count is of records and has to be the same.

    With ``partly``, Spark also counts records that are late for one of their windows only.
    """

    function: Callable[[DataFrame], DataFrame]
    mode: str
    compared: Callable[[datetime], datetime] | None
    counts: bool = True
    partly: bool = False
    slow: bool = True


CASES = [
    Case(windows, "update", window_end, counts=False),
    Case(sliding, "append", lambda at: window_end(at) + WINDOW, counts=False, partly=True),
    Case(windows, "complete", None),
    Case(sessions, "append", lambda at: at + GAP, counts=False, slow=False),
    Case(sessions, "complete", lambda at: at + GAP, counts=False),
    Case(distinct_times, "append", lambda at: at),
    Case(distinct_users, "append", lambda at: at),
    Case(within, "append", lambda at: at),
    Case(event_timers, "update", lambda at: at),
    Case(no_timers, "update", None),
    Case(event_timeout, "update", lambda at: at),
    Case(clock_timeout, "update", None),
    Case(dedup_then_windows, "append", lambda at: at),
    Case(dedup_then_windows, "complete", lambda at: at),
    Case(late_dedup_then_windows, "append", window_end, counts=False),
    Case(windows_of_windows, "append", window_end, counts=False),
    Case(joined, "update", window_end, counts=False),
]


@pytest.fixture(scope="module")
def source(broker: Broker) -> Kafka:
    topics.make(broker, TOPIC, 2)
    topics.send(broker, TOPIC, lines(), partitions=2)
    return Kafka(TOPIC, schema=VISIT, servers=broker.bootstrap, options={"maxOffsetsPerTrigger": "4"})


def run(spark: Any, source: Kafka, case: Case, folder: Path) -> tuple[Job, DroppedRecords, list[ProgressRecord]]:
    job = Job("late", case.function, reads=source, writes=Console(), mode=case.mode, trigger="available-now")
    with temporary_settings(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        progress = drain_source(spark, job, folder / "checkpoint")
    return job, DroppedRecords(spark, job, History(LocalTree(folder / "checkpoint"))), progress


def parameter(case: Case) -> Any:
    """Mark all cases as slow except for a few."""
    name = f"{case.function.__name__}-{case.mode}"
    return pytest.param(case, id=name, marks=[pytest.mark.slow] if case.slow else [])


@pytest.mark.parametrize("case", [parameter(case) for case in CASES])
def test_rules(headwater_spark, source: Kafka, tmp_path: Path, case: Case) -> None:
    """Exactly the records that the rule drops are found, and as many as Spark counts if it counts records."""
    _, finder, progress = run(headwater_spark, source, case, tmp_path)
    found = {number: finder.in_batch(number) for number in range(len(TIMES))}
    late = {
        number: [(one.position["partition"], one.position["offset"]) for one in records if one.reason == "late"]
        for number, records in found.items()
    }
    nothing: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(TIMES))}
    assert late == (nothing if case.compared is None else expected(case.compared))
    reported = {batch.batch_id: batch.dropped for batch in progress if batch.batch_id < len(TIMES)}
    for number, records in late.items():
        if case.counts:
            assert len(records) == reported[number], number
        else:
            assert bool(records) == bool(reported[number]) or (case.partly and not records), number


def test_everything_about_a_record(headwater_spark, broker: Broker, source: Kafka, tmp_path: Path) -> None:
    """Late and malformed records have topic, partition, offset, times, the rule and the reason."""
    _, finder, progress = run(headwater_spark, source, CASES[0], tmp_path)
    # Partitions that were added after the batch do not matter.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (grown,) = admin.create_partitions([NewPartitions(TOPIC, 3)]).values()
    grown.result(120)
    sixth = [record.as_dict() for record in finder.in_batch(6)]
    assert [(record["partition"], record["offset"]) for record in sixth] == [(0, 13), (1, 13)]
    malformed, late = sixth
    assert late == {
        "batch_id": 6,
        "reason": "late",
        "kind": "kafka",
        "topic": TOPIC,
        "partition": 1,
        "offset": 13,
        "value": '{"user": "u3", "at": "2024-03-01T10:30:00Z"}',
        "event_time": "2024-03-01T10:30:00.000Z",
        "watermark": "2024-03-01T10:35:00.000Z",
        "rule": "window end",
        "compared": "2024-03-01T10:35:00.000Z",
        "detail": "window end 2024-03-01T10:35:00.000Z is not after the watermark 2024-03-01T10:35:00.000Z",
        "source": None,
    }
    assert (malformed["value"], malformed["detail"]) == (MALFORMED[6, 2], "at is not a valid timestamp")
    assert (malformed["event_time"], malformed["watermark"], malformed["rule"]) == (None, None, None)
    assert [batch.malformed for batch in progress[:8]] == [0, 0, 0, 0, 1, 0, 1, 0]
    assert finder.rules
    assert finder.rules[0].delay_ms == 600_000


def test_records_that_cannot_be_traced(headwater_spark, source: Kafka, tmp_path: Path) -> None:
    """A job through which single records cannot be traced is refused with the operator that prevents it."""

    def in_pandas(visits: DataFrame) -> DataFrame:
        same = visits.mapInPandas(lambda frames: frames, VISIT)
        return with_watermark(same).groupBy(F.window("at", "5 minutes")).count()

    job = Job("late", in_pandas, reads=source, writes=Console(), mode="update")
    with pytest.raises(ChangeRefused, match="cannot trace") as refused:
        DroppedRecords(headwater_spark, job, History(LocalTree(tmp_path)))
    assert refused.value.evidence == {"the trace ends at": "MapInPandas"}


@pytest.mark.slow
def test_one_watermark_for_all(headwater_spark, source: Kafka, tmp_path: Path) -> None:
    """If Spark allows only one stateful operator, a batch drops records by its own watermark."""
    with temporary_settings(headwater_spark, {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}):
        _, finder, progress = run(headwater_spark, source, CASES[5], tmp_path)
        late = [len([one for one in finder.in_batch(number) if one.reason == "late"]) for number in range(len(TIMES))]
    assert late == [batch.dropped for batch in progress[: len(TIMES)]]
    assert sum(late) > sum(map(len, expected(lambda at: at).values()))
