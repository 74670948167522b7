"""What a session is, for the two forms of user-sessions that keep them in custom state.

These are the rules of Spark's ``session_window``: events at most ``gap`` apart belong together, and a session is closed
when the watermark reaches its last event + ``gap``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

ONE_MS = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  Spark hands timestamps to Python without a zone, in UTC


class Session(NamedTuple):
    """Its first event, its last event and how many there are."""

    start: datetime
    end: datetime
    events: int

    def closes_at_ms(self, gap: timedelta) -> int:
        """The first watermark that closes the session."""
        return -((EPOCH - self.end - gap) // ONE_MS)


def merged(sessions: Iterable[Session], gap: timedelta) -> list[Session]:
    """Sessions that an event brought together become one; a user can have several that are still open."""
    found: list[Session] = []
    for one in sorted(sessions):
        if found and one.start <= found[-1].end + gap:
            start, end, events = found.pop()
            found.append(Session(start, max(end, one.end), events + one.events))
        else:
            found.append(one)
    return found
