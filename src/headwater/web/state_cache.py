"""A cache of the states that were read recently, shared by all readers of the page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakValueDictionary

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.reader import StateReader
from headwater.statefiles.stores import StateTarget
from headwater.views.job_view import table_of
from headwater.views.key_search import KeySearch, search_keys
from headwater.views.page_state import JobStateView, KeyTimeline, StateView, key_timeline
from headwater.web.watch import WatchedCheckpoint

MAX_ROWS = 1_500_000
MAX_VIEWS = 12

ViewKey = tuple[str, int, int | None, int | None]
"""A store or variable, a batch, the time at which the batch was committed, which changes when the batch runs again, and
the batch that it is compared with, None for the previous one."""

FindViewRows = Callable[[str, int], list[dict[str, Any]]]
"""Returns the rows of the job's ``state_view`` as of a batch, given the location of a checkpoint. Loads the job."""


class StateCache:
    """Reads state and keeps what it has read.

    All methods may take seconds: call them from a thread, never from the event loop. Calls for the same batch and store
    share one read. Calls for different ones run at the same time.
    """

    def __init__(self, watched: WatchedCheckpoint, find_view_rows: FindViewRows | None = None) -> None:
        self._watched = watched
        self._find_view_rows = find_view_rows
        self._job_view: tuple[tuple[int, int | None], JobStateView] | None = None
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

    def view(self, target: StateTarget, batch: int, since: int | None = None) -> StateView:
        """Return the state of a store or variable as of a batch, compared with another one or with the previous one."""
        reader = self._current_reader()
        key = (target.label, batch, reader.logs.commits.modified_ms(batch), since)
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:
            view = self._cached(key)
            if view is None:
                before = _previous_batch(reader, target, batch) if since is None else since
                view = StateView(reader, target, batch, before)
                self._store(key, view)
            return view

    @property
    def has_job_view(self) -> bool:
        """Whether the recorded job has a ``state_view``."""
        return self._find_view_rows is not None and self._watched.snapshot.job.has_state_view

    def job_view(self, batch: int) -> JobStateView:
        """Return the state as of a batch as the job's ``state_view`` shows it. The last one is kept."""
        assert self._find_view_rows is not None
        key = (batch, self._current_reader().logs.commits.modified_ms(batch))
        kept = self._job_view
        if kept is None or kept[0] != key:
            rows = self._find_view_rows(_files(self._watched).location, batch)
            kept = self._job_view = (key, JobStateView(table_of(rows), batch))
        return kept[1]

    def compare(self, view: StateView | JobStateView, is_wanted: Callable[[], bool]) -> None:
        """Let a view find its changes, one view at a time, unless the result is no longer wanted by then."""
        with self._comparing:
            if is_wanted():
                view.compare()

    def key_timeline(self, target: StateTarget, key: dict[str, str | None], upto: int) -> KeyTimeline:
        """Return the values of a key in the batches up to one."""
        return key_timeline(self._current_reader(), target, key, upto)

    def search_keys(self, target: StateTarget, text: str, is_wanted: Callable[[], bool]) -> Iterator[KeySearch]:
        """Yield what a search over all batches has found so far, until it is no longer wanted."""
        return search_keys(self._current_reader(), target, text, is_wanted=is_wanted)

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
    readable = [number for number in reader.readable(target.operator_id) if number < batch]
    earlier = reader.in_same_form(target, readable[-1:])
    return earlier[-1] if earlier else None
