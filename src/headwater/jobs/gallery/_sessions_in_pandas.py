"""Sessions in ``applyInPandasWithState``, PySpark's flatMapGroupsWithState: one state value and one time-out per user."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pandas as pd
from pyspark.sql.streaming.state import GroupState

from headwater.jobs.gallery._durations import microseconds, milliseconds
from headwater.jobs.gallery._sessions import Session, merged

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
