"""States that were read, kept for a while: several readers look at the same batch, and one looks at it again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.reader import StateReader
from headwater.statefiles.stores import StateTarget
from headwater.views.page_state import KeyLines, StateView, key_lines
from headwater.web.watch import Watched

MOST_ROWS = 1_500_000
MOST_VIEWS = 12


class StateCache:
    """All of its answers take time: call it from a thread, never from the event loop."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._reader: tuple[int, StateReader] | None = None
        self._views: OrderedDict[tuple[str, int, int | None], StateView] = OrderedDict()
        self._lock = threading.Lock()
        # A lock of its own: a long comparison must not keep others from looking at other batches.
        self._comparing = threading.Lock()

    def targets(self, batch: int) -> list[StateTarget]:
        """What can be asked for, without what Spark keeps for itself."""
        with self._lock:
            return [target for target in self._current().targets(batch) if target.kind != "hidden"]

    def view(self, target: StateTarget, batch: int) -> StateView:
        with self._lock:
            reader = self._current()
            committed_at = reader.logs.commits.modified_ms(batch)
            name = (target.label, batch, committed_at)
            if name not in self._views:
                self._views[name] = StateView(reader, target, batch, _batch_before(reader, target, batch))
                self._make_room()
            self._views.move_to_end(name)
            return self._views[name]

    def compare(self, view: StateView, is_wanted: Callable[[], bool]) -> None:
        """Have the view know what changed, one view at a time, unless nobody wants to know it any more."""
        with self._comparing:
            if is_wanted():
                view.compare()

    def key(self, target: StateTarget, key: dict[str, str | None], upto: int) -> KeyLines:
        with self._lock:
            return key_lines(self._current(), target, key, upto)

    def _current(self) -> StateReader:
        version = self._watched.snapshot.version
        if self._reader is None or self._reader[0] != version:
            self._reader = (version, StateReader(_files(self._watched)))
        return self._reader[1]

    def _make_room(self) -> None:
        while len(self._views) > 1 and (
            len(self._views) > MOST_VIEWS or sum(view.total for view in self._views.values()) > MOST_ROWS
        ):
            self._views.popitem(last=False)


def _files(watched: Watched) -> FileTree:
    if watched.files is None:
        raise CheckpointUnreadable("no-checkpoint", f"{watched.name} is not there yet")
    return watched.files


def _batch_before(reader: StateReader, target: StateTarget, batch: int) -> int | None:
    """The batch to compare with; none where its state is gone."""
    readable = reader.readable(target.operator_id)
    earlier = [number for number in readable if number < batch]
    return earlier[-1] if earlier else None
