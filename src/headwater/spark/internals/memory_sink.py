"""The last batch in a memory table, read from Spark's ``MemorySink``. A query's progress names a batch only later.

Seen on: PySpark 4.2.0. On 4.0.5 and 4.3.0, only the probe was run, and succeeds.
Without it: a result of ``run --query --every`` names the last batch that Spark has reported, which may be one too few.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.spark.internals.gateway import has_class

SINK = "org.apache.spark.sql.execution.streaming.sources.MemorySink"


def probe(spark: SparkSession) -> bool:
    return has_class(spark, SINK)


def last_batch_in_table(query: StreamingQuery) -> int | None:
    """Return the id of the last batch in the query's memory table; None before the first one."""
    try:
        found = query._jsq.streamingQuery().sink().latestBatchId()
    except Py4JError:
        return reported_batch(query)
    return int(found.get()) if found.isDefined() else None


def reported_batch(query: StreamingQuery) -> int | None:
    """Return the id of the last batch that Spark has reported; None before the first one."""
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])
