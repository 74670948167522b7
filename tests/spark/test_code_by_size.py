"""Generated code for large batches, interpreted expressions for small ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater import Console, Job, Kafka, Rate
from headwater.checkpoint.record import ProgressRecord
from headwater.jobs.profiles import CODE, GENERATED, INTERPRETED
from headwater.spark.code_by_size import LARGE_ROWS, SMALL_BATCHES, SMALL_ROWS, CodeBySize
from headwater.spark.internals.code_generation import code_of
from waiting_support import wait_until

JOB = Job("rows", lambda rows: rows, reads=Rate(), writes=Console())


@pytest.fixture
def session(headwater_spark: SparkSession) -> SparkSession:
    """A session that leaves the choice open."""
    created = headwater_spark.newSession()
    created.conf.unset(CODE)
    return created


@pytest.fixture
def query(session: SparkSession) -> Iterator[StreamingQuery]:
    started = session.readStream.format("rate").load().writeStream.format("noop").start()
    wait_until(lambda: started.lastProgress, "a batch")
    yield started
    started.stop()


def batch(rows: int) -> ProgressRecord:
    return ProgressRecord(0, 0, rows, 0.0, 0.0, 0, None, None, None, None, None, 0, 0)


def test_switching(session: SparkSession, query: StreamingQuery) -> None:
    """After several small batches a query interprets expressions; after a large one it generates code again."""
    code = CodeBySize(session, JOB)
    code.after_batch(batch(1))  # before the query is known
    code.follow(query)

    def after(rows: int, times: int = 1) -> str:
        for _ in range(times):
            code.after_batch(batch(rows))
        return code.mode

    assert after(1, SMALL_BATCHES - 1) == GENERATED
    assert after(SMALL_ROWS) == GENERATED
    assert after(1, SMALL_BATCHES - 1) == GENERATED
    wait_until(lambda: after(1) == INTERPRETED, "the switch, which has to wait while a batch is planned")
    assert wait_until(lambda: code_of(query)) == INTERPRETED
    assert after(LARGE_ROWS) == INTERPRETED
    wait_until(lambda: after(LARGE_ROWS + 1) == GENERATED, "the switch back")
    assert wait_until(lambda: code_of(query)) == GENERATED
    assert session.conf.get(CODE, None) is None


def test_chosen_by_the_user(headwater_spark: SparkSession, session: SparkSession, query: StreamingQuery) -> None:
    """A query whose settings or profile name the mode keeps it, and so does a real-time query."""
    session.conf.set(CODE, GENERATED)
    real_time = replace(JOB, reads=Kafka("t"), mode="update", trigger="real-time 5 seconds")
    for code in (CodeBySize(session, JOB), CodeBySize(headwater_spark, JOB), CodeBySize(session, real_time)):
        code.follow(query)
        for _ in range(2 * SMALL_BATCHES):
            code.after_batch(batch(1))
        assert code.mode == GENERATED
