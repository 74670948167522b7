"""What a session is, for the two forms of user-sessions that keep them in custom state.

These are the rules of Spark's ``session_window``: events at most ``gap`` apart belong together, and a session is closed
when the watermark reaches its last event + ``gap``. Times are microseconds, as Spark itself counts them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MICROS_PER_MS = 1000


class Session(NamedTuple):
    """Its first event, its last event and how many there are."""

    start: int
    end: int
    events: int

    def closes_at_ms(self, gap: int) -> int:
        """The first watermark that closes the session: watermarks are whole milliseconds, so this rounds up."""
        return -(-(self.end + gap) // MICROS_PER_MS)


def merged(sessions: Iterable[Session], gap: int) -> list[Session]:
    """Sessions that an event brought together become one; a user can have several that are still open."""
    found: list[Session] = []
    for one in sorted(sessions):
        if found and one.start <= found[-1].end + gap:
            start, end, events = found.pop()
            found.append(Session(start, max(end, one.end), events + one.events))
        else:
            found.append(one)
    return found
