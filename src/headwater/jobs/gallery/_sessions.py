"""What a session is, for the two forms of user-sessions that keep them in custom state.

These are the rules of Spark's ``session_window``: events at most ``gap`` apart belong together, and a session is closed
when the watermark reaches its last event + ``gap``. Times are microseconds, as Spark itself counts them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState

from headwater.jobs.gallery._durations import microseconds, milliseconds

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


class OpenSessions(StatefulProcessor):
    """In update mode a session is given whenever it grew, in append mode once: when it is closed."""

    def __init__(self, gap: str, mode: str) -> None:
        self.gap, self.gives_changes = microseconds(gap), mode == "update"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.sessions = handle.getListState("sessions", "start BIGINT, end BIGINT, events BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Each event is a session of its own until it is merged with what it touches."""
        before = [Session(*one) for one in self.sessions.get()]
        after = merged([*before, *(Session(row.at, row.at, 1) for row in rows)], self.gap)
        self._store(after)
        self._move_timers(before, after)
        if self.gives_changes:
            yield from (_row(key, one) for one in after if one not in before)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Let every session go that the watermark has closed."""
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        before = [Session(*one) for one in self.sessions.get()]
        closed = [one for one in before if one.closes_at_ms(self.gap) <= watermark_ms]
        self._store([one for one in before if one not in closed])
        if not self.gives_changes:
            yield from (_row(key, one) for one in closed)

    def _store(self, sessions: list[Session]) -> None:
        if sessions:
            self.sessions.put([tuple(one) for one in sessions])
        else:
            self.sessions.clear()

    def _move_timers(self, before: list[Session], after: list[Session]) -> None:
        old = {one.closes_at_ms(self.gap) for one in before}
        new = {one.closes_at_ms(self.gap) for one in after}
        for timer_ms in old - new:
            self.handle.deleteTimer(timer_ms)
        for timer_ms in new - old:
            self.handle.registerTimer(timer_ms)


def _row(key: Any, session: Session) -> Row:
    return Row(user=key[0], **session._asdict())


# An array of structs would be the natural type; PySpark 4.2.0 cannot pass the schema of an array to its workers.
STATE = "sessions STRING"

PerUser: TypeAlias = Callable[[Any, Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def sessions_per_user(gap: str, timeout: str, mode: str) -> PerUser:
    """The function that Spark calls for each user with new events, and once more when the user's time-out is over.

    With timeout="event" the watermark closes a session. With timeout="processing" the clock does: everything from a
    user is one session until nothing has come for as long as the gap.
    """
    silence, by_watermark, gives_changes = microseconds(gap), timeout == "event", mode == "update"

    def sessions_of(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        before = [Session(*one) for one in json.loads(state.get[0])] if state.exists else []
        new = [] if state.hasTimedOut else [Session(at, at, 1) for frame in frames for at in frame["at"].tolist()]
        if by_watermark:
            after = merged([*before, *new], silence)
            watermark_ms = state.getCurrentWatermarkMs()
            closed = [one for one in after if one.closes_at_ms(silence) <= watermark_ms]
        else:
            after = _all_in_one([*before, *new])
            closed = after if state.hasTimedOut else []
        _store(state, [one for one in after if one not in closed])
        rows = [one for one in after if one not in before] if gives_changes else closed
        if rows:
            yield pd.DataFrame([(key[0], *one) for one in rows], columns=["user", *Session._fields])

    def _store(state: GroupState, sessions: list[Session]) -> None:
        if not sessions:
            state.remove()
            return
        state.update((json.dumps(sessions),))
        if by_watermark:
            # Spark's time-out comes when the watermark is past this time, ours when it has reached it.
            state.setTimeoutTimestamp(min(one.closes_at_ms(silence) for one in sessions) - 1)
        else:
            state.setTimeoutDuration(milliseconds(gap))

    return sessions_of


def _all_in_one(sessions: list[Session]) -> list[Session]:
    if not sessions:
        return []
    starts, ends, events = zip(*sessions, strict=True)
    return [Session(min(starts), max(ends), sum(events))]
