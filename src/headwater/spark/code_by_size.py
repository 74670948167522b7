"""Generated code for large batches, interpreted expressions for small ones: what a query without a profile uses.

Spark generates and compiles code for the expressions of every batch. That pays off for many rows, and costs a small batch
more than it saves.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.record import ProgressRecord
from headwater.jobs.job import Job
from headwater.jobs.profiles import CODE, GENERATED, INTERPRETED
from headwater.spark.internals.code_generation import set_code
from headwater.spark.real_time_checks import is_real_time

# Interpretation costs about 2.5 microseconds per row, and generation 30 to 50 milliseconds per batch.
SMALL_ROWS, LARGE_ROWS = 5_000, 10_000
# A stream whose batches are small only now and then keeps its compiled classes.
SMALL_BATCHES = 5


class CodeBySize:
    """Makes a query interpret expressions while its batches are small, and generate code for them otherwise.

    A query whose job or session sets the mode keeps it.
    """

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self._is_free = spark.conf.get(CODE, None) is None and not is_real_time(job)
        self._query: StreamingQuery | None = None
        self._small_batches = 0
        self.mode = GENERATED

    def follow(self, query: StreamingQuery) -> None:
        self._query = query

    def after_batch(self, batch: ProgressRecord) -> None:
        if self._query is None or not self._is_free:
            return
        wanted = self._next_mode(batch.input_rows)
        if wanted != self.mode and set_code(self._query, wanted):
            self.mode = wanted

    def _next_mode(self, rows: int) -> str:
        self._small_batches = self._small_batches + 1 if rows < SMALL_ROWS else 0
        if self._small_batches >= SMALL_BATCHES:
            return INTERPRETED
        return GENERATED if rows > LARGE_ROWS else self.mode
