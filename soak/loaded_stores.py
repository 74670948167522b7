"""The state stores that a JVM still holds after their query has stopped."""

from __future__ import annotations

import threading
import time
from typing import Any

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.StateStore$"
SECONDS_BETWEEN_LOOKS = 0.25  # a look makes some calls into the JVM for each store


class LoadedStores:
    """The stores of a JVM, which are looked at for all commands that wait for them at once."""

    def __init__(self, spark: Any) -> None:
        loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        stores = loader.loadClass(STATE_STORE)
        self._stores = stores.getField("MODULE$").get(None)
        self._providers = _field(stores, "loadedProviders").get(self._stores)
        names = [field.getName() for field in stores.getDeclaredFields()]
        # One pool up to Spark 4.2, and from 4.3 on one of high and one of low priority.
        self._pools = [_field(stores, name) for name in names if name.endswith("ThreadPool")]
        self._lock = threading.Lock()
        self._looked_at, self._roots = 0.0, list[str]()

    def wait_until_unloaded(self, folder: str, seconds: float = 120.0) -> None:
        """Return when the JVM holds no store below a folder: the process of a single command would have ended."""
        asked = time.monotonic()
        while True:
            with self._lock:
                if self._looked_at < max(asked, time.monotonic() - SECONDS_BETWEEN_LOOKS):
                    self._looked_at = time.monotonic()
                    self._roots = self._look()
                if not any(folder in root for root in self._roots):
                    return
            if time.monotonic() > asked + seconds:
                raise TimeoutError(f"Spark still holds state stores in {folder}")
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _look(self) -> list[str]:
        """Return the state folders of the loaded stores, at a moment at which none is being maintained or unloaded."""
        while True:
            # A store leaves the map before its last maintenance, which a thread of the pool does.
            ids = self._providers.keySet().toSeq()
            roots = [ids.apply(number).storeId().checkpointRootLocation() for number in range(ids.size())]
            if not any(self._is_busy(pool.get(self._stores)) for pool in self._pools):
                return roots
            time.sleep(0.005)

    def _is_busy(self, pool: Any) -> bool:
        if pool is None:  # no store was loaded yet
            return False
        threads = _field(pool.getClass(), "threadPool").get(pool)
        return threads.getActiveCount() > 0 or not threads.getQueue().isEmpty()


def _field(owner: Any, name: str) -> Any:
    field = owner.getDeclaredField(name)
    field.setAccessible(True)
    return field
