"""A fleet that is polled by a thread as long as a reader has its page open."""

from __future__ import annotations

import threading
import time

from headwater.core.errors import HeadwaterError, InternalError
from headwater.fleet.fleet import Fleet, FleetSnapshot

POLL_SECONDS, REMOTE_POLL_SECONDS = 1.0, 15.0
READER_SECONDS = 30.0
CHECK_EVERY_MS = 10 * 60_000
# Checks of many streams take minutes of CPU: leave most of it to others.
CHECK_SHARE = 0.3
# The first readers want the table, not the checks.
FIRST_CHECK_SECONDS = 4.0


class FleetWatch:
    """Refreshes a fleet and runs the checks on one stream after the other, while it is read."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.problem: HeadwaterError | None = None
        self._stop = threading.Event()
        self._read = threading.Event()
        self._read_at = self._started_at = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="watch fleet", daemon=True)

    @property
    def snapshot(self) -> FleetSnapshot:
        """The newest snapshot. Reading it keeps the thread awake."""
        self._read_at = time.monotonic()
        self._read.set()
        return self.fleet.snapshot

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._read.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                self.fleet.refresh(lambda: None)
                self.problem = None
            except HeadwaterError as error:
                self.problem = error
            except Exception as error:  # the next refresh may succeed
                self.problem = InternalError(error)
            took = time.monotonic() - started
            remote = any("://" in stream.location for stream in self.fleet.snapshot.streams)
            self._check_until(time.monotonic() + max(took, REMOTE_POLL_SECONDS if remote else POLL_SECONDS))
            if time.monotonic() - self._read_at > READER_SECONDS:
                self._read.clear()
                self._read.wait()

    def _check_until(self, deadline: float) -> None:
        """Run checks, with pauses, until it is time for the next refresh."""
        while not self._stop.is_set() and time.monotonic() < deadline:
            if time.monotonic() - self._started_at < FIRST_CHECK_SECONDS:
                self._stop.wait(0.2)
                continue
            name = self.fleet.due_for_check(time.time_ns() // 1_000_000, CHECK_EVERY_MS)
            if name is None:
                self._stop.wait(max(0.0, deadline - time.monotonic()))
                return
            started = time.monotonic()
            self.fleet.check(name)
            took = time.monotonic() - started
            self._stop.wait(min(took / CHECK_SHARE - took, max(0.0, deadline - time.monotonic())))
