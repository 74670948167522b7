"""End a query between two batches. ``StreamingQuery.stop`` interrupts the current one.

Sets the private state of ``StreamExecution`` to ``TERMINATED``, which its loop checks before each batch.

Seen on: PySpark 4.2.0, 4.3.0.
Without it: a run is stopped with ``StreamingQuery.stop``; the interrupted batch runs again at the next start.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.spark.internals.gateway import first_class

STREAMING = "org.apache.spark.sql.execution.streaming"
TERMINATED = (f"{STREAMING}.runtime.TERMINATED$", f"{STREAMING}.TERMINATED$")  # the second one on Spark 4.0
POLL_MS = 200


def probe(spark: SparkSession) -> bool:
    return first_class(spark, TERMINATED) is not None


def end_after_batch(query: StreamingQuery) -> None:
    """Make the query end once the current batch is committed, and return immediately."""
    terminated = _terminated(query)
    if terminated is None:
        query.stop()
    else:
        query._jsq.streamingQuery().state().set(terminated)


def _terminated(query: StreamingQuery) -> Any:
    loader = query._jsq.getClass().getClassLoader()
    for name in TERMINATED:
        with suppress(Py4JJavaError):
            return loader.loadClass(name).getField("MODULE$").get(None)
    return None


def stop_after_batch(query: StreamingQuery) -> None:
    """Finish the current batch, then end the query."""
    try:
        end_after_batch(query)
    except Py4JError:  # another Spark, whose class has another name, or a JVM that died
        query.stop()
        return
    # The query reports that it has ended as soon as the state is set; only its thread shows when it really has.
    thread = query._jsq.streamingQuery().queryExecutionThread()
    while thread.isAlive():
        thread.join(POLL_MS)
        # Between triggers no batch runs, and the thread may sleep for the rest of a long interval.
        if thread.isAlive() and not query.status["isTriggerActive"]:
            query.stop()
