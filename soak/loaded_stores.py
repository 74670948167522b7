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
        names = [field.getName() for field in stores.getDeclaredFields()]
        self._loaded = _field(stores, "loadedProviders").get(self._stores)
        # A store that has left the map may still be maintained, by one of two kinds of threads in Spark 4.3.
        self._waiting = [_field(stores, name).get(self._stores) for name in names if name == "unloadedProvidersToClose"]
        self._maintained = [_field(stores, name).get(self._stores) for name in names if name.endswith("Partitions")]
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
        """Return the state folders of all stores that are loaded, maintained or about to be closed."""
        before = self._roots_now()
        time.sleep(0.005)  # a store may be nowhere for a moment, on its way from one place to the next
        return sorted(before | self._roots_now())

    def _roots_now(self) -> set[str]:
        ids = [
            *_elements(self._loaded.keySet().toSeq()),
            *(one for partitions in self._maintained for one in _elements(partitions.toSeq())),
            *(pair._1() for queue in self._waiting for pair in queue.toArray()),
        ]
        return {one.storeId().checkpointRootLocation() for one in ids}


def _elements(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _field(owner: Any, name: str) -> Any:
    field = owner.getDeclaredField(name)
    field.setAccessible(True)
    return field
