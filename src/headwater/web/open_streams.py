"""The checkpoints of a fleet whose pages are open. Each has a thread that polls it, until its page is closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headwater.checkpoint.locate import open_checkpoint
from headwater.fleet.fleet import Fleet
from headwater.web.page import SharedCheckpoint
from headwater.web.state_cache import FindViewRows
from headwater.web.watch import WatchedCheckpoint

UNUSED_SECONDS = 120.0


class OpenStreams:
    """Returns what readers of a stream's page share, and closes what no page has used for a while."""

    def __init__(self, fleet: Fleet, find_view_rows: FindViewRows | None = None) -> None:
        self._fleet = fleet
        self._find_view_rows = find_view_rows
        self._open: dict[str, SharedCheckpoint] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> SharedCheckpoint | None:
        """Return a stream by its name in the fleet; None if there is none."""
        files = self._fleet.files_of(name)
        if files is None:
            return None
        with self._lock:
            self._close(lambda shared: time.monotonic() - shared.used_at > UNUSED_SECONDS)
            if name not in self._open:
                location = files.location
                watched = WatchedCheckpoint(name, lambda: open_checkpoint(location))
                watched.start()
                self._open[name] = SharedCheckpoint(watched, None, self._find_view_rows)
            return self._open[name]

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            self._close(lambda _: True)

    def _close(self, is_unused: Callable[[SharedCheckpoint], bool]) -> None:
        for name in [name for name, shared in self._open.items() if is_unused(shared)]:
            self._open.pop(name).watched.stop()
