"""State stores that a stopped query leaves loaded in the JVM.

Calls ``StateStore.stop``, and before it ``stopMaintenanceTaskWithoutLock`` where Spark has it (from 4.1 on).

Seen on: PySpark 3.5.9, 4.2.0.
Without it: a checkpoint cannot be changed safely in the process that ran its query; ``scenario`` refuses to rewind.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.StateStore$"


def probe(spark: SparkSession) -> bool:
    try:
        return "stop" in dir(_stores(spark))
    except Py4JError:
        return False


def unload_state_stores(spark: SparkSession) -> None:
    """Stop this JVM's state stores from writing: maintenance may upload a snapshot long after a query has stopped.

    Call it before a checkpoint is changed in the process that ran its query, while no batch is running. Queries that are
    still active load their stores again with their next batch.
    """
    stores = _stores(spark)
    if "stopMaintenanceTaskWithoutLock" in dir(stores):
        stores.stopMaintenanceTaskWithoutLock()  # first: StateStore.stop waits for its threads while holding their lock
    stores.stop()


def _stores(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.loadClass(STATE_STORE).getField("MODULE$").get(None)
