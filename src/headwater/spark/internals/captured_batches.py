"""The rows of each batch of a query, collected inside the JVM by ``CapturedBatches.java``.

A ``foreachBatch`` function in Python is called back for every batch and plans a query of its own for the rows. This one
collects them in the job that computes the batch, and writes them with the generator behind ``to_json``.

Seen on: PySpark 4.2.0.
Without it (a JVM that another program started does not have the jar): a function in Python captures the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

Action = Callable[[], None]


def probe(spark: SparkSession) -> bool:
    """Return whether the JVM has the class, and the class can write rows on this Spark."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None or not isinstance(jvm.headwater.streaming.CapturedBatches, JavaClass):
        return False
    try:
        return bool(jvm.headwater.streaming.CapturedBatches.works())
    except Py4JError:
        return False


class CapturedBatches:
    """What the batches of one query emitted."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        self._gateway = gateway
        self._function = gateway.jvm.headwater.streaming.CapturedBatches()

    def capture(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Make this the sink of a query that has not started yet."""
        writer._jwrite.foreachBatch(self._function)
        return writer

    def surround(self, before: Action | None = None, after: Action | None = None) -> None:
        """Run actions before and after the output of each batch from now on. One that raises makes the query fail."""
        if before or after:
            ensure_callback_server_started(self._gateway)
        self._function.surround(*(action and _Runnable(action) for action in (before, after)))

    def take(self) -> list[tuple[int, list[dict[str, Any]]]]:
        """Return the batches that ran since the last call, each with its rows as a JSON reader sees them."""
        return [(batch_id, rows) for batch_id, rows in json.loads(self._function.take())]


class _Runnable:
    def __init__(self, action: Action) -> None:
        self._action = action

    def run(self) -> None:
        self._action()

    class Java:
        """The Java interface, under the name that Py4J expects."""

        implements: ClassVar = ["java.lang.Runnable"]
