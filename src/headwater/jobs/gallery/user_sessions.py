"""Sessions of any length: a session ends when its user has been silent for 30 minutes of event time.

One job in three forms that give the same sessions. ``session_window`` is built in and is what to use. The other two
show how one writes a stateful operator of one's own: ``transform_with_state`` with timers, ``pandas`` with a time-out.

Spark drops a late event by the end of its session window (event + gap), but in custom state by the watermark's column.
So the two put their watermark on event + gap, which stays back by the gap more: all three then drop the same events.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Files, Job
from headwater.jobs.gallery._sessions import STATE, OpenSessions, sessions_per_user

MICROS = "user STRING, start BIGINT, end BIGINT, events BIGINT"
TIMEOUTS = {"event": "EventTimeTimeout", "processing": "ProcessingTimeTimeout"}


def user_sessions(
    events: DataFrame,
    *,
    form: str = "session_window",
    gap: str = "30 minutes",
    watermark: str = "10 minutes",
    timeout: str = "event",
    mode: str = "append",
) -> DataFrame:
    """One row per session of a user: first event, last event, number of events.

    ``form`` is session_window, transform_with_state or pandas. The last two also take mode="update" (give it as --mode
    too); pandas also takes timeout="processing".
    """
    if form == "session_window":
        in_time = events.withWatermark("event_time", watermark)
        sessions = in_time.groupBy("user", F.session_window("event_time", gap)).agg(
            F.min("event_time").alias("start"), F.max("event_time").alias("end"), F.count("*").alias("events")
        )
        return sessions.drop("session_window")
    users = (
        events.where("event_time IS NOT NULL")
        .select(
            "user", F.unix_micros("event_time").alias("at"), (F.expr(f"event_time + INTERVAL '{gap}'")).alias("closing")
        )
        .withWatermark("closing", f"{watermark} {gap}")
        .groupBy("user")
    )
    if form == "transform_with_state":
        return _as_times(users.transformWithState(OpenSessions(gap, mode), MICROS, mode, "EventTime"))
    if form == "pandas" and timeout in TIMEOUTS:
        per_user = sessions_per_user(gap, timeout, mode)
        return _as_times(users.applyInPandasWithState(per_user, MICROS, STATE, mode, TIMEOUTS[timeout]))
    raise ValueError(
        f"form={form!r}, timeout={timeout!r}: session_window, transform_with_state or pandas, event or processing is wanted"
    )


def _as_times(sessions: DataFrame) -> DataFrame:
    return sessions.select("user", *(F.timestamp_micros(name).alias(name) for name in ("start", "end")), "events")


USER_SESSIONS = Job(
    "user-sessions",
    user_sessions,
    reads=Files("data/events", schema="user STRING, event_time TIMESTAMP"),
    writes=Files("out/user-sessions", format="json"),
    mode="append",
)
