"""The Java listener that records the queries of a session, added to a JVM that another program started.

Adding a jar to a session would ship it to all executors, so the class is loaded by a class loader of its own. It reads
the private members of ``StreamExecution`` that ``MEMBERS`` names: the checkpoint, the sink, the plan and the thread of a
query. On request it stops a query, by the state of ``StreamExecution`` that ``query_end`` sets too.

Seen on: PySpark 4.2.0. On 4.0.5 and 4.3.0, only the probe was run, and succeeds.
Without it (Spark Connect, or a release that renamed these members): ``headwater.attach`` warns and does nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.jars.own_jar import LISTENER

STREAM_EXECUTION = (
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution",
    "org.apache.spark.sql.execution.streaming.StreamExecution",
)
MEMBERS = {
    "analyzedPlan",
    "deleteCheckpointOnStop",
    "outputMode",
    "queryExecutionThread",
    "resolvedCheckpointRoot",
    "runId",
    "sink",
    "sparkSession",
}


def probe(spark: SparkSession) -> bool:
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return False
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in STREAM_EXECUTION:
        with suppress(Py4JError):
            fields = {field.getName() for field in loader.loadClass(name).getDeclaredFields()}
            return fields >= MEMBERS
    return False


class QueryRecorder:
    """The listener of a session. A session has at most one: a second recorder stands for the same listener.

    ``version`` and ``code`` describe the program in the record of each run.
    """

    def __init__(self, spark: SparkSession, jar: Path, version: str | None = None, code: str | None = None) -> None:
        self._queries: Any = spark.streams._jsqm
        self._listener = self._present() or self._added(spark, jar)
        self._listener.setProgram(version, code)
        # A query that starts meanwhile is announced to the listener too, which records it once.
        for query in spark.streams.active:
            self._listener.begin(query._jsq.id())

    def _present(self) -> Any:
        listeners = self._queries.listListeners()
        return next((one for one in listeners if one.getClass().getName() == LISTENER), None)

    def _added(self, spark: SparkSession, jar: Path) -> Any:
        gateway, jvm = spark.sparkContext._gateway, spark._jvm
        assert gateway is not None
        assert jvm is not None
        urls = gateway.new_array(jvm.java.net.URL, 1)
        urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
        parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loaded = jvm.java.net.URLClassLoader(urls, parent).loadClass(LISTENER)
        types = gateway.new_array(jvm.java.lang.Class, 2)
        types[0], types[1] = parent.loadClass("org.apache.spark.sql.SparkSession"), jvm.java.lang.Long.TYPE
        values = gateway.new_array(jvm.java.lang.Object, 2)
        values[0], values[1] = spark._jsparkSession, os.getpid()
        listener = loaded.getConstructor(types).newInstance(values)
        self._queries.addListener(listener)
        return listener

    def keep_reports(self) -> None:
        """Keep the reports of batches for ``take_reports``."""
        self._listener.keepReports()

    def take_reports(self) -> list[str]:
        """Return the reports since the last call as JSON. Raise ``Py4JError`` or ``ConnectionError`` if Spark has ended."""
        return list(self._listener.takeReports())

    def keep_ended(self) -> None:
        """Keep the checkpoints of queries that end for ``take_ended``."""
        self._listener.keepEnded()

    def take_ended(self) -> list[str]:
        """Return the checkpoints of queries that ended since the last call. Raise as ``take_reports`` does."""
        return list(self._listener.takeEnded())

    def checkpoints(self) -> list[str]:
        """Return the checkpoints whose leases the listener holds. Raise as ``take_reports`` does."""
        return list(self._listener.checkpoints())

    def close(self) -> None:
        """Stop recording, and release the leases of running queries."""
        with suppress(Py4JError, ConnectionError):  # a JVM that has ended has released them
            self._queries.removeListener(self._listener)
            self._listener.close()
