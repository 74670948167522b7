"""Stories of a group meet where their JVM is killed, or where their services restart.

Each story runs in a process of its own. At an event it waits for the others, starts its action, says when it is ready for
the event, and continues when the event is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

ARRIVED, READY, BEGIN, OVER = "arrived", "ready", "begin", "over"


class Meeting:
    """The story's side."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def attended(self) -> Iterator[Meeting]:
        """Wait for the other stories, run the block, which ends with ``ready``, and wait until the event is over."""
        self._connection.send(ARRIVED)
        self._expect(BEGIN)
        yield self
        self._expect(OVER)

    def ready(self) -> None:
        self._connection.send(READY)

    def _expect(self, word: str) -> None:
        found = self._connection.recv()
        if found != word:
            raise RuntimeError(f"expected {word!r} from the group, received {found!r}")


class Host:
    """The group's side: the connections to the stories that have not ended."""

    def __init__(self, connections: dict[Connection, int], end: Callable[[int, Any], None]) -> None:
        self._open, self._end = dict(connections), end

    @property
    def has_stories(self) -> bool:
        return bool(self._open)

    def hold(self, event: Callable[[], None], quorum: float = 1.0) -> None:
        """Wait for every story, and let ``event`` happen when a share of them is ready, at least one."""
        present = self._collect(ARRIVED, 1.0)
        if not present:
            return
        self._tell(present, BEGIN)
        ready = self._collect(READY, quorum)
        event()
        self._tell(present, OVER)
        self._collect_rest(present - ready)

    def wait_for_ends(self) -> None:
        self._collect(ARRIVED, 1.0)

    def _collect(self, word: str, share: float) -> set[Connection]:
        """Receive a word of a share of the stories that are left; a story may also end."""
        found: set[Connection] = set()
        while len(found) < max(1.0, len(self._open) * share) and found < set(self._open):
            found |= self._receive(word, set(self._open) - found)
        return found & set(self._open)

    def _collect_rest(self, late: set[Connection]) -> None:
        """Receive the word of those that were not ready when the event happened."""
        while late := late & set(self._open):
            late -= self._receive(READY, late)

    def _receive(self, word: str, connections: set[Connection]) -> set[Connection]:
        """Return those that have said a word, at least one unless stories end, which are taken off the list."""
        found = set()
        for connection in wait(list(connections)):
            assert isinstance(connection, Connection)
            try:
                message = connection.recv()
            except EOFError:
                message = None
            if message == word:
                found.add(connection)
            elif isinstance(message, str):
                raise RuntimeError(f"story {self._open[connection]} said {message!r}, expected {word!r}")
            else:
                self._end(self._open.pop(connection), message)
        return found

    def _tell(self, connections: set[Connection], word: str) -> None:
        for connection in connections & set(self._open):
            try:
                connection.send(word)
            except OSError:  # it ends; the next wait finds out
                continue
