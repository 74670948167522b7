"""Visits decoded and passed on: the least that a stateless job can do, for measuring latency."""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Job, Kafka


def passed_on(visits: DataFrame) -> DataFrame:
    """Every visit but its page."""
    return visits.where("browser is not null").select("userId", "browser", "eventTime")


PASSED_ON = Job(
    "passed-on",
    passed_on,
    reads=Kafka("visits", schema="userId INT, page STRING, eventTime TIMESTAMP, browser STRING"),
    writes=Kafka("passed-on", key="browser"),
    mode="update",
)
