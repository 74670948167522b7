"""Sessions of any length: a session ends when its user has been inactive for 30 minutes of event time.

The job has three forms that emit the same sessions. ``session_window`` is built in and the one to use. The other two
show how to write a stateful operator: ``transform_with_state`` with timers, ``pandas`` with a timeout.

For a session window, Spark compares event + gap with the watermark to decide whether an event is late. For custom state
it compares the column that has the watermark. These two forms therefore put their watermark on event + gap and delay it
by an additional gap, so that all three forms drop the same events.
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

    ``form`` is session_window, transform_with_state or pandas. The last two also support mode="update", together with
    --mode update; pandas also supports timeout="processing".
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
        f"form={form!r}, timeout={timeout!r}: use session_window, transform_with_state or pandas; event or processing"
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
