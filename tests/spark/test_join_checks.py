"""Joins of two streams: what is refused before a query starts, compared with what real Spark does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Console, Files, Job
from headwater.core.errors import JobRefused
from headwater.spark.prepared import check_only
from headwater.spark.reading import read_inputs

LEFT = "id INT, at TIMESTAMP"
RIGHT = "other INT, then TIMESTAMP"
RANGE = "id = other AND then BETWEEN at AND at + INTERVAL 1 HOUR"
ONE_SIDED = "id = other AND then <= at + INTERVAL 1 HOUR"
Function = Callable[[DataFrame, DataFrame], DataFrame]


def joined(how: str, condition: str = RANGE, *, watermarks: str = "both") -> Function:
    def function(left: DataFrame, right: DataFrame) -> DataFrame:
        if watermarks in ("both", "left"):
            left = left.withWatermark("at", "10 minutes")
        if watermarks in ("both", "right"):
            right = right.withWatermark("then", "10 minutes")
        return left.join(right, F.expr(condition), how)

    return function


def counted(function: Function, *keys: Any) -> Function:
    return lambda left, right: function(left, right).groupBy(*(keys or (F.window("at", "10 minutes"),))).count()


def by_window(how: str, *, keep_time: bool = False) -> Function:
    def windows(frame: DataFrame, time: str, name: str) -> DataFrame:
        found = frame.withWatermark(time, "10 minutes").withColumn(name, F.window(time, "1 hour"))
        return found if keep_time else found.drop(time)

    return lambda left, right: windows(left, "at", "l").join(windows(right, "then", "r"), F.expr("l = r"), how)


def filtered_later(left: DataFrame, right: DataFrame) -> DataFrame:
    """The condition is in a later filter."""
    paired = left.withWatermark("at", "10 minutes").join(right.withWatermark("then", "10 minutes"))
    return paired.where(RANGE)


def united(left: DataFrame, right: DataFrame) -> DataFrame:
    both = left.union(right.select(F.col("other").alias("id"), F.col("then").alias("at")))
    return both.withWatermark("at", "10 minutes").groupBy(F.window("at", "10 minutes")).count()


def self_joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return joined("inner")(left, left.select(F.col("id").alias("other"), F.col("at").alias("then")))


def joined_twice(how: str, *, keep: bool) -> Function:
    def function(left: DataFrame, right: DataFrame) -> DataFrame:
        first = joined("inner")(left, right)
        first = first if keep else first.drop("then")
        third = right.withWatermark("then", "10 minutes").select(
            F.col("other").alias("third"), F.col("then").alias("last")
        )
        return first.join(third, F.expr("id = third AND last BETWEEN at AND at + INTERVAL 1 HOUR"), how)

    return function


@dataclass(frozen=True)
class Case:
    """A job, the code of its refusal if any, and what Spark does by itself."""

    name: str
    function: Function
    mode: str
    code: str | None = None
    spark: str = "refuses"
    warns: str = ""
    slow: bool = True


REFUSED = [
    *(
        Case(f"{how} {mode}", joined(how), mode, "mode")
        for how in ("left_outer", "right_outer", "full_outer")
        for mode in ("update", "complete")
    ),
    Case("inner complete", joined("inner"), "complete", "mode"),
    Case("semi complete", joined("left_semi"), "complete", "mode"),
    Case("inner then counts complete", counted(joined("inner")), "complete", "mode"),
    Case("outer then counts update", counted(joined("left_outer")), "update", "mode"),
    Case("anti", joined("left_anti"), "append", "join-type"),
    *(
        Case(f"{how} without watermarks", joined(how, watermarks="none"), "append", "join-watermark")
        for how in ("left_outer", "right_outer", "full_outer", "left_semi")
    ),
    Case("left, watermark on the left", joined("left_outer", watermarks="left"), "append", "join-watermark"),
    Case("right, watermark on the right", joined("right_outer", watermarks="right"), "append", "join-watermark"),
    Case("left without a range", joined("left_outer", "id = other"), "append", "join-watermark"),
    Case("semi without a range", joined("left_semi", "id = other"), "append", "join-watermark"),
    Case(
        "left, range on the wrong side", joined("left_outer", "id = other AND then >= at"), "append", "join-watermark"
    ),
    Case("inner then counts without a watermark", counted(joined("inner"), "id"), "append", "mode"),
    # What Spark finds out when the first batch runs.
    Case("no equality", joined("inner", "at < then"), "append", "join-condition", "fails", slow=False),
    Case("cross", lambda left, right: left.crossJoin(right).where(RANGE), "append", "join-type", "fails"),
    Case("windows and times", by_window("left_outer", keep_time=True), "append", "event-times", "fails", slow=False),
    Case("three streams with two times", joined_twice("inner", keep=True), "append", "event-times", "fails"),
    Case("two times in a key", counted(joined("inner"), "at", "then"), "append", "event-times", "fails"),
    # What Spark accepts, although rows without a match are never emitted.
    Case("left, watermark on the right", joined("left_outer", watermarks="right"), "append", "join-watermark", "runs"),
    Case("semi, watermark on the right", joined("left_semi", watermarks="right"), "append", "join-watermark", "runs"),
    Case("full, range on one side", joined("full_outer", ONE_SIDED), "append", "join-watermark", "runs"),
]
ACCEPTED = [
    *(Case(how, joined(how), "append", spark="runs") for how in ("inner", "left_outer", "right_outer", "left_semi")),
    Case("full_outer", joined("full_outer"), "append", spark="runs", slow=False),
    Case("inner update", joined("inner"), "update", spark="runs"),
    Case("semi update", joined("left_semi"), "update", spark="runs"),
    Case(
        "no watermarks", joined("inner", "id = other", watermarks="none"), "append", None, "runs", "both sides", False
    ),
    Case("inner, range on one side", joined("inner", ONE_SIDED), "append", None, "runs", "the right side"),
    Case("left, range on one side", joined("left_outer", ONE_SIDED), "append", None, "runs", "the right side"),
    Case("windows", by_window("full_outer"), "append", spark="runs"),
    Case("filtered later", filtered_later, "append", spark="runs", slow=False),
    Case("union", united, "append", spark="runs"),
    Case("union complete", united, "complete", spark="runs"),
    Case("self-join", self_joined, "append", spark="runs"),
    Case("inner then counts", counted(joined("inner")), "append", spark="runs"),
    Case("inner then counts update", counted(joined("inner")), "update", spark="runs"),
    Case("outer then counts", counted(joined("left_outer")), "append", spark="runs"),
    Case("three streams", joined_twice("left_outer", keep=False), "append", spark="runs"),
]


def job_of(case: Case, folder: Path) -> Job:
    folders = {"left": folder / "left", "right": folder / "right"}
    for number, one in enumerate(folders.values()):
        one.mkdir(parents=True, exist_ok=True)
        id_, time = (("id", "at"), ("other", "then"))[number]
        (one / "1.json").write_text(f'{{"{id_}": 1, "{time}": "2024-01-01T10:0{number}:00Z"}}\n')
    schemas = {"left": LEFT, "right": RIGHT}
    reads = {name: Files(str(one), schema=schemas[name]) for name, one in folders.items()}

    def function(left: DataFrame, right: DataFrame) -> DataFrame:
        return case.function(left, right)

    return Job("joined", function, reads=reads, writes=Console(), mode=case.mode)


def outcome_on_spark(spark: SparkSession, job: Job, folder: Path) -> str:
    """Return whether Spark refuses to start the job, fails at its first batch, or runs it."""
    frame = job.apply(read_inputs(spark, job))
    writer = frame.writeStream.outputMode(job.mode).format("noop").option("checkpointLocation", str(folder / "c"))
    try:
        query = writer.trigger(availableNow=True).start()
    except AnalysisException:
        return "refuses"
    try:
        query.awaitTermination()
    except StreamingQueryException:
        return "fails"
    return "runs"


def parameters(cases: list[Case]) -> list[Any]:
    """Spark refuses at once, but a batch takes a second: most cases that run one are slow."""
    slow = pytest.mark.slow
    return [
        pytest.param(one, id=one.name, marks=[slow] if one.slow and one.spark != "refuses" else []) for one in cases
    ]


@pytest.mark.parametrize("case", parameters(REFUSED))
def test_refused(headwater_spark: SparkSession, tmp_path: Path, case: Case) -> None:
    """A refusal has a short message and a remedy, and Spark refuses the join too, or fails, or never emits some rows."""
    job = job_of(case, tmp_path)
    with pytest.raises(JobRefused) as refused:
        check_only(headwater_spark, job)
    print(refused.value)
    assert refused.value.code == case.code
    assert refused.value.remedy
    assert len(str(refused.value).splitlines()) <= 5
    assert outcome_on_spark(headwater_spark, job, tmp_path) == case.spark


@pytest.mark.parametrize("case", parameters(ACCEPTED))
def test_accepted(headwater_spark: SparkSession, tmp_path: Path, case: Case) -> None:
    """Spark runs what is accepted, and there is a warning if the state of a side never expires."""
    job = job_of(case, tmp_path)
    warnings = check_only(headwater_spark, job)
    assert bool(warnings) == bool(case.warns), warnings
    assert all(case.warns in warning for warning in warnings)
    assert outcome_on_spark(headwater_spark, job, tmp_path) == case.spark


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "emitted"),
    [
        (Case("right only", joined("left_outer", watermarks="right"), "append"), []),
        (Case("one side", joined("full_outer", ONE_SIDED), "append"), [(1, None)]),
        (Case("both", joined("full_outer"), "append"), [(1, None), (None, 2)]),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else None,
)
def test_rows_without_a_match(headwater_spark: SparkSession, tmp_path: Path, case: Case, emitted: list[Any]) -> None:
    """Outer joins that are refused but run on Spark do not emit the rows that they should; accepted ones do."""
    job = job_of(case, tmp_path)
    (tmp_path / "right" / "1.json").write_text('{"other": 2, "then": "2024-01-01T10:00:00Z"}\n')
    found: list[Any] = []
    for number in range(3):
        frame = job.apply(read_inputs(headwater_spark, job)).select("id", "other")
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        writer.start().awaitTermination()
        for name, line in {"left": '{"id": 8, "at": "%s"}', "right": '{"other": 9, "then": "%s"}'}.items():
            (tmp_path / name / f"later-{number}.json").write_text(line % f"2024-01-0{number + 2}T10:00:00Z" + "\n")
    assert sorted((row for row in found if row[0] == 1 or row[1] == 2), key=str) == sorted(emitted, key=str)
