"""Joins of streams, killed, rewound and replayed on real Spark, and the records that each side drops."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from broker_support import Broker, headwater
from headwater import Console, Files, Job, Kafka
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord
from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.datagen.stream import FIXED_START_MS, RecordStream, Shares, stepped_blocks
from headwater.jobs.endpoints import Source
from headwater.jobs.loading import load_job
from headwater.spark.dropped import DroppedRecords
from headwater.spark.internals.state_stores import unload_state_stores
from headwater.spark.ownership import Run
from headwater.spark.prepared import prepare_job
from headwater.spark.replay import replay, replayable
from headwater.spark.runner import run_job
from headwater.spark.writing import capturing_writer
from headwater.timemachine.rewind import plan_rewind
from headwater.views.comparison import compare_rows
from jobs.golden import by_source
from sink_support import committed_lines
from spark import topic_support as topics
from spark.draining import drain_source
from spark.replay_support import in_folder

ATTRIBUTION = replace(
    load_job("ad-attribution"), settings={"within": "2 minutes", "watermark": "1 minute"}, trigger="available-now"
)
BATCHES, PER_BATCH = 5, 150


def generated() -> tuple[list[list[dict[str, str]]], set[str]]:
    """Return impressions and clicks in batches, and the late ones among them."""
    stream = RecordStream("impressions,clicks", seed=5, shares=Shares(late=0.03, malformed=0.02))
    (block,) = stepped_blocks(stream, start_ms=FIXED_START_MS, count=BATCHES * PER_BATCH)
    lines = [
        {"source": name, "value": value.decode()} for name, value in zip(block.streams, block.records, strict=True)
    ]
    batches = [lines[at : at + PER_BATCH] for at in range(0, len(lines), PER_BATCH)]
    return batches, {lines[index]["value"] for index in block.late if index >= 2 * PER_BATCH}


def on_topics(broker: Broker, batches: Sequence[Sequence[Any]]) -> dict[str, Source]:
    """Write the records to two topics, of which every batch reads a part: Spark forgets a silent source at a restart."""
    sources: dict[str, Source] = {}
    for name, lines in by_source([line for batch in batches for line in batch]).items():
        topics.make(broker, f"rewound-{name}")
        topics.send(broker, f"rewound-{name}", lines)
        schema = ATTRIBUTION.sources[name].decoding.schema
        limit = str(-(-len(lines) // BATCHES))
        sources[name] = Kafka(
            f"rewound-{name}", schema, servers=broker.bootstrap, options={"maxOffsetsPerTrigger": limit}
        )
    return sources


def run_until(spark: SparkSession, job: Job, checkpoint: Path, batch_id: int) -> None:
    """Run a job until a batch is committed, then stop it."""
    stop = threading.Event()

    def on_batch(batch: ProgressRecord) -> None:
        if batch.batch_id >= batch_id:
            stop.set()

    run_job(spark, Run(job, "ad-attribution", str(checkpoint)), stop=stop, on_batch=on_batch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "kafka"])
def test_killed_and_rewound(
    headwater_spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """A join that is killed, restarted and rewound writes what an uninterrupted one writes; late records name their source."""
    batches, late = generated()
    if kind == "files":
        sources = in_folder(ATTRIBUTION, tmp_path, batches)[0].sources
    else:
        sources = on_topics(request.getfixturevalue("broker"), batches)
    job = ATTRIBUTION.with_inputs(sources)
    letters = tmp_path / "letters"
    smooth = replace(job, writes=Files(str(tmp_path / "smooth"), format="json"), dead_letters=f"files:{letters}")
    progress = drain_source(headwater_spark, smooth, tmp_path / "smooth-checkpoint")
    expected = committed_lines(tmp_path / "smooth")
    assert sum("clicked_at" in row for row in expected) > 20
    assert sum("clicked_at" not in row for row in expected) > 50

    rough, checkpoint = replace(job, writes=Files(str(tmp_path / "rough"), format="json")), tmp_path / "checkpoint"
    run_until(headwater_spark, rough, checkpoint, 2)
    unload_state_stores(headwater_spark)
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):  # as after a kill between the output and the commit
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    drain_source(headwater_spark, rough, checkpoint)
    assert committed_lines(tmp_path / "rough") == expected
    unload_state_stores(headwater_spark)
    rewound = headwater("rewind", checkpoint, "--to", 1, "--yes")
    assert rewound.returncode == 0, rewound.stderr
    assert committed_lines(tmp_path / "rough") != expected
    drain_source(headwater_spark, rough, checkpoint)
    assert committed_lines(tmp_path / "rough") == expected

    check_dropped(headwater_spark, smooth, tmp_path / "smooth-checkpoint", progress, late)
    saved = [json.loads(line) for file in letters.iterdir() for line in file.read_text().splitlines()]
    assert {record["value"] for record in saved if record["reason"] == "late"} >= late
    assert {record["source"] for record in saved} == {"impressions", "clicks"}
    check_replay(headwater_spark, job, checkpoint)


def check_dropped(
    spark: SparkSession, job: Job, checkpoint: Path, progress: list[ProgressRecord], late: set[str]
) -> None:
    """Every dropped record is found with its source, as many as Spark counts: a join does not aggregate before it counts."""
    finder = DroppedRecords(spark, job, History(LocalTree(checkpoint)))
    found = {batch.batch_id: finder.in_batch(batch.batch_id) for batch in progress}
    for batch in progress:
        records = found[batch.batch_id]
        assert sum(one.reason == "late" for one in records) == batch.dropped
    dropped = [one for records in found.values() for one in records]
    assert {one.value for one in dropped if one.reason == "late"} >= late
    for one in dropped:
        if one.reason == "late":
            assert one.source == ("impressions" if "shown_at" in (one.value or "") else "clicks")
            assert one.rule == "event time"
    assert sum(one.reason == "malformed" for one in dropped) == BATCHES * PER_BATCH * 0.02


def check_replay(spark: SparkSession, job: Job, checkpoint: Path) -> None:
    """A replay emits the same rows from recorded state, and other rows if the code has changed."""
    chosen, files = replayable(job), LocalTree(checkpoint)
    (again,) = replay(spark, chosen, files, 2, 2)
    (changed,) = replay(spark, replace(chosen, settings={**job.settings, "within": "30 seconds"}), files, 2, 2)
    compared = compare_rows(2, again.rows, changed.rows)
    assert len(again.rows) > 20
    assert not compared.same
    fresh = replay(spark, chosen, files, 2, 3, from_empty_state=True)
    assert [one.batch_id for one in fresh] == [2, 3]
    clicked = [{row["impression"] for row in one.rows if row["clicked_at"]} for one in (fresh[0], again)]
    assert clicked[0] < clicked[1], "clicks of earlier impressions find no match"


LEFT, RIGHT = "id INT, at TIMESTAMP", "other INT, then TIMESTAMP"
START_MS = ms_from_iso("2024-01-01T10:00:00Z")
# Minutes of the left and of the right side, batch by batch: late ones on either side, and times equal to the watermark.
TIMES = [
    ([0, 1, 2], [1, 2]),
    ([30, 3], [40, 4]),
    ([31, 5, 21], [41, 6]),
    ([60, 20], [62, 19, 21]),
    ([61, 30, 50, 70], [63, 22, 52]),
    ([80, 51, 9], [81, 50, 7]),
]


@dataclass(frozen=True)
class Case:
    """A job on two streams, and how often it uses each record."""

    name: str
    function: Any
    drops: bool = True
    uses: int = 1
    rewinds: bool = False
    counts: bool = True
    """Whether Spark counts records: after partial aggregation it counts groups."""
    removes: tuple[str, ...] = ("left", "right")
    """The sides from which Spark removes records without a key before the join, so that they are not late."""


def joined(how: str, *columns: str, condition: str = "then BETWEEN at AND at + INTERVAL 15 MINUTES") -> Any:
    def function(left: DataFrame, right: DataFrame) -> DataFrame:
        left, right = left.withWatermark("at", "10 minutes"), right.withWatermark("then", "10 minutes")
        found = left.join(right, F.expr(f"id = other AND {condition}"), how)
        return found.select(*columns) if columns else found

    return function


def self_joined(left: DataFrame, right: DataFrame) -> DataFrame:
    again = left.select(F.col("id").alias("other"), F.col("at").alias("then"))
    both = joined("inner")(left, again)
    return both.select("id", "at").union(joined("inner")(left, right).select("id", "at"))


def counted(left: DataFrame, right: DataFrame) -> DataFrame:
    return joined("left_outer")(left, right).groupBy(F.window("at", "5 minutes")).count()


def united(left: DataFrame, right: DataFrame) -> DataFrame:
    both = left.union(right).withWatermark("at", "10 minutes")
    return both.groupBy(F.window("at", "1 minute")).agg(F.count("*").alias("n"))


def by_window(left: DataFrame, right: DataFrame) -> DataFrame:
    first = left.withWatermark("at", "10 minutes").select("id", F.window("at", "1 minute").alias("w"))
    second = right.withWatermark("then", "10 minutes").select("other", F.window("then", "1 minute").alias("v"))
    return first.join(second, F.expr("id = other AND w = v"), "full_outer")


CASES = [
    *(Case(how, joined(how)) for how in ("inner", "left_semi")),
    Case("left_outer", joined("left_outer"), removes=("right",)),
    Case("right_outer", joined("right_outer"), removes=("left",)),
    Case("full_outer", joined("full_outer"), removes=()),
    Case("unread times", joined("inner", "id", condition="true"), drops=False),
    Case("windows", by_window, removes=()),
    Case("self-join", self_joined, uses=3, rewinds=True),
    Case("join then counts", counted, rewinds=True, removes=("right",)),
    Case("union", united, counts=False, removes=()),
]
WITHOUT_KEY = (5, 7, 9, 19)
IN_EVERY_RUN = {"full_outer"}


def parameter(case: Case) -> Any:
    return pytest.param(case, id=case.name, marks=[] if case.name in IN_EVERY_RUN else [pytest.mark.slow])


def line(source: str, minute: int, number: int) -> dict[str, str]:
    names = {"left": ("id", "at"), "right": ("other", "then")}[source]
    key = None if minute in WITHOUT_KEY else number % 3
    return {"source": source, "value": json.dumps({names[0]: key, names[1]: iso_from_ms(START_MS + minute * 60_000)})}


def late_lines(case: Case) -> dict[int, list[str]]:
    """Return the lines that each batch drops: batch N compares with the watermark of batch N - 1, of the slower side."""
    latest, before, own, found = {"left": 0, "right": 0}, 0, 0, {}
    for number, sides in enumerate(TIMES):
        found[number] = []
        for source, minutes in zip(("left", "right"), sides, strict=True):
            for place, minute in enumerate(minutes):
                end = 1 if case.name in ("windows", "union") else 0
                if minute in WITHOUT_KEY and source in case.removes:
                    continue
                if case.drops and START_MS + (minute + end) * 60_000 <= before:
                    found[number].append(line(source, minute, place)["value"])
                latest[source] = max(latest[source], START_MS + minute * 60_000)
        slower = max(latest.values()) if case.name == "union" else min(latest.values())
        before, own = own, max(own, slower - 10 * 60_000)
    return found


@pytest.mark.parametrize("case", [parameter(case) for case in CASES])
def test_each_side_drops_by_its_own_time(headwater_spark: SparkSession, tmp_path: Path, case: Case) -> None:
    """Exactly the late records of each side are found, as many as Spark counts, and a replay emits the recorded rows."""
    steps = [
        [
            line(source, minute, place)
            for source, times in zip(("left", "right"), sides, strict=True)
            for place, minute in enumerate(times)
        ]
        for sides in TIMES
    ]
    reads: Mapping[str, Source] = {"left": Files("left", schema=LEFT), "right": Files("right", schema=RIGHT)}
    job, _ = in_folder(Job("joined", case.function, reads=reads, writes=Console()), tmp_path, steps)
    query, emitted = run_capturing(headwater_spark, job, tmp_path / "c")
    reported = {
        one["batchId"]: sum(operator["numRowsDroppedByWatermark"] for operator in one["stateOperators"])
        for one in (json.loads(progress.json) for progress in query.recentProgress)
    }
    finder = DroppedRecords(headwater_spark, job, History(LocalTree(tmp_path / "c")))
    expected = late_lines(case)
    assert bool(sum(map(len, expected.values()))) == case.drops
    for number in range(len(TIMES)):
        records = finder.in_batch(number)
        assert sorted(one.value or "" for one in records) == sorted(expected[number]), number
        if case.counts:
            assert sum(case.uses if one.source == "left" else 1 for one in records) == reported[number], number
    again = replay(headwater_spark, job, LocalTree(tmp_path / "c"), 2, 3)
    assert [sorted(map(str, one.rows)) for one in again] == [emitted[number] for number in (2, 3)]
    if case.rewinds:
        unload_state_stores(headwater_spark)
        plan_rewind(LocalTree(tmp_path / "c"), to=2).apply()
        assert run_capturing(headwater_spark, job, tmp_path / "c")[1] == {
            number: rows for number, rows in emitted.items() if number > 2
        }
        assert not [one for one in run_checks(CheckContext(LocalTree(tmp_path / "c"), 0)) if one.severity == "error"]


def run_capturing(spark: SparkSession, job: Job, checkpoint: Path) -> tuple[StreamingQuery, dict[int, list[str]]]:
    """Run a job to its end; return the query, and the rows of each batch as sorted texts."""
    prepared, emitted = prepare_job(spark, job), dict[int, list[str]]()
    writer = prepared.frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)

    def keep(number: int, rows: Any) -> None:
        emitted[number] = sorted(map(str, rows))

    query = writer.foreachBatch(capturing_writer(prepared.result_of, keep)).start()
    query.awaitTermination()
    return query, emitted
