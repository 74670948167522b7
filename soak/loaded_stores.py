"""The state stores that a JVM still holds after their query has stopped."""

from __future__ import annotations

import time
from typing import Any

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.StateStore$"


def wait_until_unloaded(spark: Any, folder: str, seconds: float = 120.0) -> None:
    """Return when the JVM holds no state store below a folder: the process of a single command would have ended."""
    deadline = time.monotonic() + seconds
    while any(folder in root for root in _loaded_roots(spark)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Spark still holds state stores in {folder}")
        time.sleep(0.05)


def _loaded_roots(spark: Any) -> list[str]:
    """Return the state folders of the loaded stores, at a moment at which none is being maintained or unloaded."""
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    stores = loader.loadClass(STATE_STORE).getField("MODULE$").get(None)
    while True:
        # A store leaves the map before its last maintenance, which a thread of the pool does.
        ids = _field(stores, "loadedProviders").keySet().toSeq()
        roots = [ids.apply(number).storeId().checkpointRootLocation() for number in range(ids.size())]
        pool = _field(stores, "maintenanceThreadPool")
        threads = None if pool is None else _field(pool, "threadPool")
        if threads is None or (threads.getQueue().isEmpty() and threads.getActiveCount() == 0):
            return roots
        time.sleep(0.005)


def _field(owner: Any, name: str) -> Any:
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
