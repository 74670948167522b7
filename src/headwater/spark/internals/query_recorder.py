"""The Java listener that records the queries of a session, added to a JVM that another program started.

Adding a jar to a session would ship it to all executors, so the class is loaded by a class loader of its own. A JVM loads
it once: Py4J remembers methods by the name of their class, and cannot call those of a second class with that name. It
reads the private members of ``StreamExecution`` that ``MEMBERS`` names: the checkpoint, the sink, the plan and the thread
of a query. On request it stops a query, by the state of ``StreamExecution`` that ``query_end`` sets too.

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
from headwater.spark.internals.gateway import is_context_stopped

LOADED_CLASS = f"headwater.class.{LISTENER}"
"""The system property that holds the class, because several Python processes may share a JVM."""
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
        self._context = spark.sparkContext
        self._queries: Any = spark.streams._jsqm
        present = self._present()
        self._listener = present or _new_listener(spark, jar)
        try:
            self._listener.setProgram(version, code)
            if present is None:
                self._queries.addListener(self._listener)
            # A query that starts meanwhile is announced to the listener too, which records it once.
            for query in spark.streams.active:
                self._listener.begin(query._jsq.id())
        except BaseException:
            if present is None:
                self.close()
            raise

    @property
    def has_ended(self) -> bool:
        """Whether the session was stopped, so that nothing more will be recorded."""
        return is_context_stopped(self._context)

    def _present(self) -> Any:
        listeners = self._queries.listListeners()
        return next((one for one in listeners if one.getClass().getName() == LISTENER), None)

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


def _new_listener(spark: SparkSession, jar: Path) -> Any:
    gateway, jvm = spark.sparkContext._gateway, spark._jvm
    assert gateway is not None
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    types = gateway.new_array(jvm.java.lang.Class, 2)
    types[0], types[1] = loader.loadClass("org.apache.spark.sql.SparkSession"), jvm.java.lang.Long.TYPE
    values = gateway.new_array(jvm.java.lang.Object, 2)
    values[0], values[1] = spark._jsparkSession, os.getpid()
    loaded = jvm.System.getProperties()
    if not loaded.containsKey(LOADED_CLASS):
        urls = gateway.new_array(jvm.java.net.URL, 1)
        urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
        loaded.putIfAbsent(LOADED_CLASS, jvm.java.net.URLClassLoader(urls, loader).loadClass(LISTENER))
    return loaded.get(LOADED_CLASS).getConstructor(types).newInstance(values)
