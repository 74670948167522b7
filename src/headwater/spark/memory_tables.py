"""SQL on a memory table while a job fills it. Each result names the last batch that it contains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.jobs.endpoints import Memory
from headwater.jobs.job import Job
from headwater.spark.failures import explained
from headwater.spark.internals.memory_sink import last_batch_in_table

ATTEMPTS = 3
ALL_ROWS = 2**31 - 1
# The last batch in each table that a per-batch job fills in this process; None while a table is being replaced.
_last_batches: dict[str, int | None] = {}


@contextmanager
def replacing_table(name: str, batch_id: int) -> Iterator[None]:
    """Replace the table of a per-batch job in the block, after which it contains the rows of this batch too."""
    _last_batches[name] = None
    yield
    _last_batches[name] = batch_id


def sql_result(spark: SparkSession, sql: str) -> str:
    """Run a SQL query and return its result as the table that Spark prints."""
    with explained("cannot run --query"), redirect_stdout(StringIO()) as printed:
        spark.sql(sql).show(n=ALL_ROWS, truncate=False)
    return printed.getvalue().removesuffix("\n\n")


class RepeatedQuery:
    """A SQL query on a memory table that runs at an interval while the job runs.

    ``show`` receives each result, below a line such as ``after batch 3:``.
    """

    def __init__(self, spark: SparkSession, job: Job, sql: str, seconds: float, show: Callable[[str], None]) -> None:
        self._spark, self._job, self._sql, self._seconds, self._show = spark, job, sql, seconds, show
        self._due = time.monotonic() + seconds

    def poll(self, query: StreamingQuery) -> None:
        """Show a result if the interval is over and the table contains a batch; call this several times a second."""
        if time.monotonic() < self._due:
            return
        before = self._last_batch(query)
        if before is None:
            return
        for _ in range(ATTEMPTS):
            text = sql_result(self._spark, self._sql)
            after = self._last_batch(query)
            if after is None:
                return
            if after == before:
                heading = f"after batch {after}:"
                break
            # Another batch was added while the SQL query ran: the result may contain it, or not yet.
            heading = f"between batch {before} and batch {after}:"
            before = after
        self._show(f"{heading}\n{text}")
        now = time.monotonic()
        self._due = self._due + self._seconds if self._due + self._seconds > now else now + self._seconds

    def _last_batch(self, query: StreamingQuery) -> int | None:
        if self._job.per_batch and isinstance(self._job.writes, Memory):
            return _last_batches.get(self._job.writes.name)
        return last_batch_in_table(query)
