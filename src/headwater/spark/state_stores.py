"""State stores that a stopped query leaves loaded in a living JVM."""

from __future__ import annotations

from pyspark.sql import SparkSession


def unload_state_stores(spark: SparkSession) -> None:
    """Have this JVM's stores write no more: their maintenance may upload a snapshot long after their query has stopped.

    To be called before a checkpoint is changed in the process that ran its query, while no batch is being worked on.
    Queries that are still active load their stores again with their next batch.
    """
    assert spark._jvm is not None
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    stores = (
        loader.loadClass("org.apache.spark.sql.execution.streaming.state.StateStore$").getField("MODULE$").get(None)
    )
    stores.stopMaintenanceTaskWithoutLock()  # first: StateStore.stop waits for its threads with a lock that they want
    stores.stop()
