"""State stores that a stopped query leaves loaded in the JVM.

Calls ``StateStore.stop``, and before it ``stopMaintenanceTaskWithoutLock`` where Spark has it (from 4.1 on). On 4.0 the
private threads of the maintenance are ended instead. The stores of one checkpoint are found in ``loadedProviders`` and
unloaded with ``doMaintenanceAndUnload``, or ``unload`` before 4.1.

Seen on: PySpark 3.5.9, 4.0.5, 4.1.4, 4.2.0, 4.3.0.
Without it: a checkpoint cannot be changed safely in the process that ran its query; ``scenario`` refuses to rewind.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import STATE

MAINTENANCE_SECONDS = 60
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
    # First: StateStore.stop waits for its threads, for minutes, while it holds a lock that they need.
    if "stopMaintenanceTaskWithoutLock" in dir(stores):
        stores.stopMaintenanceTaskWithoutLock()
    else:
        _end_maintenance(spark, stores)
    stores.stop()


def unload_stores_of(spark: SparkSession, checkpoint: FileTree) -> None:
    """Unload the stores of one checkpoint, whose query has stopped. Other queries may run batches meanwhile."""
    stores = _stores(spark)
    unload = stores.doMaintenanceAndUnload if "doMaintenanceAndUnload" in dir(stores) else stores.unload
    for store in loaded_stores(spark, checkpoint):
        unload(store)


def loaded_stores(spark: SparkSession, checkpoint: FileTree) -> list[Any]:
    """Return the ids of the stores of a checkpoint that this JVM holds."""
    found = _private(_stores(spark), "loadedProviders").keySet().toSeq()
    state = _without_scheme(checkpoint.spark_uri(STATE))
    ids = [found.apply(number) for number in range(found.size())]
    return [one for one in ids if _without_scheme(one.storeId().checkpointRootLocation()) == state]


def _without_scheme(uri: str) -> str:
    return uri.partition(":")[2]  # one store is s3 for some sessions, and s3a for others


def _end_maintenance(spark: SparkSession, stores: Any) -> None:
    """End the threads that Spark 4.0 has for the maintenance of state stores. Spark 3.5 has one, and does not wait for it."""
    pool = _private(stores, "maintenanceThreadPool")
    if pool is None:
        return
    assert spark._jvm is not None
    seconds = spark._jvm.java.util.concurrent.TimeUnit.SECONDS
    task, workers = _private(stores, "maintenanceTask"), _private(pool, "threadPool")
    if task is not None:  # first: it gives work to the others
        task.stop()
        _private(task, "executor").awaitTermination(MAINTENANCE_SECONDS, seconds)
    workers.shutdown()
    workers.awaitTermination(MAINTENANCE_SECONDS, seconds)


def _private(owner: Any, name: str) -> Any:
    """Return the value of a private field; None if the class has no such field."""
    try:
        field = owner.getClass().getDeclaredField(name)
    except Py4JError:
        return None
    field.setAccessible(True)
    return field.get(owner)


def _stores(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.loadClass(STATE_STORE).getField("MODULE$").get(None)
