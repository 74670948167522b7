"""Switch a running query between generated code and interpreted expressions.

A query runs its batches on a copy of the session that it was started on. The plan of the last batch leads to that copy,
whose settings Spark reads when it plans the next batch.

Seen on: PySpark 4.2.0, 4.3.0.
Without it: a query keeps the setting that it started with.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.jobs.profiles import CODE
from headwater.spark.internals.gateway import first_class

EXECUTION = (
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution",
    "org.apache.spark.sql.execution.streaming.StreamExecution",  # on Spark 4.0
)


def probe(spark: SparkSession) -> bool:
    name = first_class(spark, EXECUTION)
    if name is None:
        return False
    jvm: Any = spark._jvm
    methods = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name).getMethods()
    return any(method.getName() == "lastExecution" for method in methods)


def set_code(query: StreamingQuery, mode: str) -> bool:
    """Set how the next batches evaluate expressions; return whether that was possible."""
    with suppress(Py4JError):
        last: Any = query._jsq.streamingQuery().lastExecution()
        if last is not None:  # None while a batch is being planned
            last.sparkSession().conf().set(CODE, mode)
            return True
    return False


def code_of(query: StreamingQuery) -> str | None:
    """Return how the last batch evaluated expressions; None while a batch is being planned."""
    last: Any = query._jsq.streamingQuery().lastExecution()
    return None if last is None else str(last.sparkSession().conf().get(CODE))
