"""Jobs whose results change from run to run are recognized, and no others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from headwater import Console, Files, Job
from headwater.spark.nondeterminism import unstable_calls, unstable_expressions

FAR = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(days=1)


def rows(frame: Any) -> Any:
    """Uses dates and random numbers, but only fixed ones."""
    return frame.where(F.col("at") < F.lit(FAR)).withColumn("seeded", F.lit(random.Random(7).random()))


def helper() -> float:
    return time.time()


class Stamps(StatefulProcessor):
    """Reads the clock inside custom state."""

    def init(self, handle: Any) -> None: ...

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        yield datetime.now(tz=UTC)


def with_helper(frame: Any) -> Any:
    return frame.withColumn("at", F.lit(helper()))


def with_state(frame: Any) -> Any:
    return frame.groupBy("user").transformWithState(Stamps(), "at TIMESTAMP", "Update", "None")


def with_inner(frame: Any) -> Any:
    import uuid

    @F.udf("string")
    def tag(user: str) -> str:
        return user + str(uuid.uuid4()) + random.choice("ab")

    return frame.withColumn("tag", tag("user"))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (rows, []),
        (with_helper, ["time.time()"]),
        (with_state, ["datetime.now()"]),
        (with_inner, ["uuid.uuid4()", "random.choice()"]),
    ],
)
def test_clocks_and_random_numbers_in_code(function: Callable[..., Any], expected: list[str]) -> None:
    """Calls to clocks and random numbers are found in Python code, which Spark does not analyze."""
    assert unstable_calls(function) == expected


def job_with(function: Callable[..., Any], **changes: Any) -> Job:
    job = Job("j", function, reads=Files("in", schema="user STRING, at TIMESTAMP"), writes=Console(), mode="append")
    return replace(job, **changes)


def test_expressions_of_the_plan(headwater_spark, tmp_path) -> None:
    """Random numbers are always unstable; the time is recorded for a stream, and unstable in a per-batch job."""

    def unstable(function: Callable[..., Any], **changes: Any) -> list[tuple[str, bool]]:
        job = job_with(function, **changes)
        found = unstable_expressions(headwater_spark, replace(job, reads=replace(job.reads, path=str(tmp_path))))
        return [(one.text.partition("(")[0], one.recorded) for one in found]

    stamped = lambda frame: frame.withColumn("seen", F.current_timestamp())  # noqa: E731
    assert unstable(rows) == []
    assert unstable(lambda frame: frame.withColumn("luck", F.rand())) == [("rand", False)]
    assert unstable(stamped) == [("current_timestamp", True)]
    assert unstable(stamped, per_batch=True) == [("current_timestamp", False)]
    assert unstable(lambda frame: frame.withColumn("id", F.expr("uuid()")), per_batch=True) == [("uuid", False)]


def test_messages(headwater_spark, tmp_path) -> None:
    """An unstable expression is a warning, a recorded time only a notice."""
    job = job_with(lambda frame: frame.select(F.rand(), F.current_date()))
    found = unstable_expressions(headwater_spark, replace(job, reads=replace(job.reads, path=str(tmp_path))))
    lines = sorted(part.warning_for("j") for part in found)
    assert lines[0].startswith("j uses current_date()")
    assert lines[0].endswith("the replay uses the time recorded with the batch")
    assert lines[1].startswith("warning: j uses rand(")
