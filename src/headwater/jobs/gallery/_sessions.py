"""Sessions in custom state, for two of the forms of user-sessions.

They follow the rules of Spark's ``session_window``: events at most ``gap`` apart belong to one session, and a session is
closed when the watermark reaches its last event + ``gap``. Times are in microseconds, as in Spark's timestamps.
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
    """The time of the first event, the time of the last one, and the number of events."""

    start: int
    end: int
    events: int

    def closes_at_ms(self, gap: int) -> int:
        """Return the first watermark that closes the session. Watermarks are in milliseconds, so this rounds up."""
        return -(-(self.end + gap) // MICROS_PER_MS)


def merged(sessions: Iterable[Session], gap: int) -> list[Session]:
    """Merge sessions that are at most ``gap`` apart. A user can have several open sessions."""
    result: list[Session] = []
    for session in sorted(sessions):
        if result and session.start <= result[-1].end + gap:
            start, end, events = result.pop()
            result.append(Session(start, max(end, session.end), events + session.events))
        else:
            result.append(session)
    return result


class OpenSessions(StatefulProcessor):
    """Keeps each user's open sessions in a list. A timer closes each of them when the watermark reaches its end.

    In update mode a session is emitted whenever it grows, in append mode once, when it is closed.
    """

    def __init__(self, gap: str, mode: str) -> None:
        self.gap, self.emits_changes = microseconds(gap), mode == "update"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.sessions = handle.getListState("sessions", "start BIGINT, end BIGINT, events BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Add each event as a session of its own, then merge sessions that are close enough."""
        before = [Session(*row) for row in self.sessions.get()]
        after = merged([*before, *(Session(row.at, row.at, 1) for row in rows)], self.gap)
        self._store(after)
        self._move_timers(before, after)
        if self.emits_changes:
            yield from (_row(key, session) for session in after if session not in before)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Remove the sessions that the watermark has closed, and emit them in append mode."""
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        before = [Session(*row) for row in self.sessions.get()]
        closed = [session for session in before if session.closes_at_ms(self.gap) <= watermark_ms]
        self._store([session for session in before if session not in closed])
        if not self.emits_changes:
            yield from (_row(key, session) for session in closed)

    def _store(self, sessions: list[Session]) -> None:
        if sessions:
            self.sessions.put([tuple(session) for session in sessions])
        else:
            self.sessions.clear()

    def _move_timers(self, before: list[Session], after: list[Session]) -> None:
        old = {session.closes_at_ms(self.gap) for session in before}
        new = {session.closes_at_ms(self.gap) for session in after}
        for timer_ms in old - new:
            self.handle.deleteTimer(timer_ms)
        for timer_ms in new - old:
            self.handle.registerTimer(timer_ms)


def _row(key: Any, session: Session) -> Row:
    return Row(user=key[0], **session._asdict())


# Sessions as JSON. An array of structs would be the natural type, but PySpark 4.2.0 cannot pass its schema to workers.
STATE = "sessions STRING"

PerUser: TypeAlias = Callable[[Any, Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def sessions_per_user(gap: str, timeout: str, mode: str) -> PerUser:
    """Return the function that Spark calls for each user with new events, and when the user's timeout expires.

    With timeout="event" the watermark closes a session. With timeout="processing" the wall clock does: all events of a
    user are one session until no event has arrived for the length of the gap.
    """
    gap_micros, by_watermark, emits_changes = microseconds(gap), timeout == "event", mode == "update"

    def sessions_of(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        before = [Session(*row) for row in json.loads(state.get[0])] if state.exists else []
        new = [] if state.hasTimedOut else [Session(at, at, 1) for frame in frames for at in frame["at"].tolist()]
        if by_watermark:
            after = merged([*before, *new], gap_micros)
            watermark_ms = state.getCurrentWatermarkMs()
            closed = [session for session in after if session.closes_at_ms(gap_micros) <= watermark_ms]
        else:
            after = _merged_into_one([*before, *new])
            closed = after if state.hasTimedOut else []
        _store(state, [session for session in after if session not in closed])
        emitted = [session for session in after if session not in before] if emits_changes else closed
        if emitted:
            yield pd.DataFrame([(key[0], *session) for session in emitted], columns=["user", *Session._fields])

    def _store(state: GroupState, sessions: list[Session]) -> None:
        if not sessions:
            state.remove()
            return
        state.update((json.dumps(sessions),))
        if by_watermark:
            # Spark's timeout expires when the watermark is past this time; a session closes when it is reached.
            state.setTimeoutTimestamp(min(session.closes_at_ms(gap_micros) for session in sessions) - 1)
        else:
            state.setTimeoutDuration(milliseconds(gap))

    return sessions_of


def _merged_into_one(sessions: list[Session]) -> list[Session]:
    if not sessions:
        return []
    starts, ends, events = zip(*sessions, strict=True)
    return [Session(min(starts), max(ends), sum(events))]
