"""A cache of the states that were read recently, shared by all readers of the page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from weakref import WeakValueDictionary

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.reader import StateReader
from headwater.statefiles.stores import StateTarget
from headwater.views.page_state import KeyTimeline, StateView, key_timeline
from headwater.web.watch import WatchedCheckpoint

MAX_ROWS = 1_500_000
MAX_VIEWS = 12

ViewKey = tuple[str, int, int | None]
"""A store or variable, a batch, and the time at which the batch was committed: it changes when the batch runs again."""


class StateCache:
    """Reads state and keeps what it has read.

    All methods may take seconds: call them from a thread, never from the event loop. Calls for the same batch and store
    share one read. Calls for different ones run at the same time.
    """

    def __init__(self, watched: WatchedCheckpoint) -> None:
        self._watched = watched
        self._reader: tuple[int, StateReader] | None = None
        self._views: OrderedDict[ViewKey, StateView] = OrderedDict()
        # A lock exists as long as a thread holds it or waits for it.
        self._reading: WeakValueDictionary[ViewKey, threading.Lock] = WeakValueDictionary()
        self._comparing = threading.Lock()
        # Guards the fields above. It is never held while files are read.
        self._lock = threading.Lock()

    def targets(self, batch: int) -> list[StateTarget]:
        """Return the stores and variables of a batch, without the hidden ones of Spark."""
        return [target for target in self._current_reader().targets(batch) if target.kind != "hidden"]

    def view(self, target: StateTarget, batch: int) -> StateView:
        """Return the state of a store or variable as of a batch."""
        reader = self._current_reader()
        key = (target.label, batch, reader.logs.commits.modified_ms(batch))
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:
            view = self._cached(key)
            if view is None:
                view = StateView(reader, target, batch, _previous_batch(reader, target, batch))
                self._store(key, view)
            return view

    def compare(self, view: StateView, is_wanted: Callable[[], bool]) -> None:
        """Let a view find its changes, one view at a time, unless the result is no longer wanted by then."""
        with self._comparing:
            if is_wanted():
                view.compare()

    def key_timeline(self, target: StateTarget, key: dict[str, str | None], upto: int) -> KeyTimeline:
        """Return the values of a key in the batches up to one."""
        return key_timeline(self._current_reader(), target, key, upto)

    def _current_reader(self) -> StateReader:
        """Return a reader that sees the newest batches."""
        with self._lock:
            version = self._watched.snapshot.version
            if self._reader is None or self._reader[0] != version:
                self._reader = (version, StateReader(_files(self._watched)))
            return self._reader[1]

    def _cached(self, key: ViewKey) -> StateView | None:
        with self._lock:
            view = self._views.get(key)
            if view is not None:
                self._views.move_to_end(key)
            return view

    def _store(self, key: ViewKey, view: StateView) -> None:
        with self._lock:
            self._views[key] = view
            while len(self._views) > 1 and (
                len(self._views) > MAX_VIEWS or sum(one.total for one in self._views.values()) > MAX_ROWS
            ):
                self._views.popitem(last=False)


def _files(watched: WatchedCheckpoint) -> FileTree:
    if watched.files is None:
        raise CheckpointUnreadable("no-checkpoint", f"{watched.name} does not exist yet")
    return watched.files


def _previous_batch(reader: StateReader, target: StateTarget, batch: int) -> int | None:
    """Return the batch to compare with; None if no earlier state can be rebuilt."""
    earlier = [number for number in reader.readable(target.operator_id) if number < batch]
    return earlier[-1] if earlier else None
