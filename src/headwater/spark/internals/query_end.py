"""End a query between two batches. ``StreamingQuery.stop`` interrupts the current one.

Sets the private state of ``StreamExecution`` to ``TERMINATED``, which its loop checks before each batch. Spark also
checks it once a batch is planned, and interrupts the batch then, so the state is set only while a batch writes its
output or no batch runs. The stack of the query's thread shows which of these it does.

Seen on: PySpark 4.0.5, 4.2.0, 4.3.0.
Without it: a run is stopped with ``StreamingQuery.stop``; the interrupted batch runs again at the next start.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.spark.internals.gateway import first_class

PACKAGES = (
    "org.apache.spark.sql.execution.streaming.runtime",
    "org.apache.spark.sql.execution.streaming",  # on Spark 4.0
)
POLL_SECONDS = 0.02
JOIN_MS = 200
WRITING = re.compile(r"SQLExecution\$\.withNewExecutionId\([^)]*\), [^,]*MicroBatchExecution\.\$anonfun\$runBatch")
Phase = Literal["idle", "planning", "writing"]


def probe(spark: SparkSession) -> bool:
    return first_class(spark, [f"{package}.TERMINATED$" for package in PACKAGES]) is not None


def end_after_batch(query: StreamingQuery) -> None:
    """Make the query end once the current batch is committed, and return immediately: for a batch that writes output."""
    terminated = _state_named(query, "TERMINATED$")
    if terminated is None:
        query.stop()
    else:
        query._jsq.streamingQuery().state().set(terminated)


def stop_after_batch(query: StreamingQuery, is_abandoned: Callable[[], bool] = lambda: False) -> None:
    """Finish the current batch, then end the query. If ``is_abandoned`` returns True, interrupt the batch."""
    if is_abandoned():
        query.stop()
        return
    try:
        active, terminated = _state_named(query, "ACTIVE$"), _state_named(query, "TERMINATED$")
    except Py4JError:  # a JVM that died
        active = terminated = None
    if active is None or terminated is None:
        query.stop()
        return
    execution = query._jsq.streamingQuery()
    thread, state = execution.queryExecutionThread(), execution.state()
    phase: Phase = "idle"
    while thread.isAlive():
        if is_abandoned():
            query.stop()
            return
        phase = _phase(query)
        if phase != "planning":
            state.set(terminated)
            if _phase(query) == phase:
                break
            state.set(active)  # too late: the next batch may be planned by now
        time.sleep(POLL_SECONDS)
    state.set(terminated)
    if phase == "idle":
        query.stop()  # no batch begins any more, but the thread may sleep for the rest of a long interval
    while thread.isAlive():
        thread.join(JOIN_MS)
        if thread.isAlive() and is_abandoned():
            query.stop()


def _phase(query: StreamingQuery) -> Phase:
    waits = "WAITING" in str(query._jsq.streamingQuery().queryExecutionThread().getState())
    if not query.status["isTriggerActive"]:
        # A thread that runs may have looked at the state already, and be about to begin a batch.
        return "idle" if waits else "planning"
    return "writing" if WRITING.search(calls_of(query)) else "planning"


def calls_of(query: StreamingQuery) -> str:
    """Return the calls that the thread of a query is in."""
    assert SparkContext._jvm is not None
    stack = query._jsq.streamingQuery().queryExecutionThread().getStackTrace()
    return str(SparkContext._jvm.scala.runtime.ScalaRunTime.stringOf(stack))


def _state_named(query: StreamingQuery, name: str) -> Any:
    loader = query._jsq.getClass().getClassLoader()
    for package in PACKAGES:
        with suppress(Py4JJavaError):
            return loader.loadClass(f"{package}.{name}").getField("MODULE$").get(None)
    return None
