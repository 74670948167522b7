"""Sessions in ``transformWithState``: a list of open sessions, and a timer where each will close."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater.jobs.gallery._durations import microseconds
from headwater.jobs.gallery._sessions import Session, merged


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
