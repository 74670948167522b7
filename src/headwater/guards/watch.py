"""The sources of a running stream, checked at an interval by a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.core.errors import HeadwaterError
from headwater.guards.report import SourceReport

CHECK_SECONDS = 60.0


class SourceWatch:
    """The newest report on the sources of a stream. As a context manager, it stops at the end of the block.

    ``check`` is ``check_sources`` on a checkpoint.
    """

    def __init__(self, check: Callable[[], SourceReport], seconds: float = CHECK_SECONDS) -> None:
        self._check = check
        self._seconds = seconds
        self._report: SourceReport | None = None
        self._has_batches = False
        self._is_stopped = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headwater-sources", daemon=True)
        self._thread.start()

    def latest(self) -> SourceReport | None:
        """Return the newest report; None until the first check is done, or if it failed."""
        return self._report

    def after_batch(self, _: object = None) -> None:
        """Check at once after the first batch: before it, a new stream has no sources to check."""
        if not self._has_batches:
            self._has_batches = True
            self._due.set()

    def _watch(self) -> None:
        while not self._is_stopped:
            try:
                self._report = self._check()
            # The running job moves files; the next check reads them again.
            except (HeadwaterError, OSError, ImportError, ValueError):
                self._report = None
            self._due.wait(self._seconds)
            self._due.clear()

    def __enter__(self) -> SourceWatch:
        return self

    def __exit__(self, *_: object) -> None:
        # A check that waits for a broker is not waited for: it changes nothing.
        self._is_stopped = True
        self._due.set()
