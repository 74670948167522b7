"""End a query between two batches. ``StreamingQuery.stop`` interrupts the current one.

Sets the private state of ``StreamExecution`` to ``TERMINATED``, which its loop checks before each batch.

Seen on: PySpark 4.2.0.
Without it: a run is stopped with ``StreamingQuery.stop``; the interrupted batch runs again at the next start.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.spark.internals.gateway import has_class

TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"
POLL_MS = 200


def probe(spark: SparkSession) -> bool:
    return has_class(spark, TERMINATED)


def end_after_batch(query: StreamingQuery) -> None:
    """Make the query end once the current batch is committed, and return immediately."""
    state = query._jsq.getClass().getClassLoader().loadClass(TERMINATED).getField("MODULE$").get(None)
    query._jsq.streamingQuery().state().set(state)


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
