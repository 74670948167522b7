"""Visits decoded and passed through: the least that a stateless job can do, to measure latency."""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater import Job, Kafka


def passthrough(visits: DataFrame) -> DataFrame:
    """Keep visits that have a browser, without their page."""
    return visits.where("browser is not null").select("userId", "browser", "eventTime")


PASSTHROUGH = Job(
    "passthrough",
    passthrough,
    reads=Kafka("visits", schema="userId INT, page STRING, eventTime TIMESTAMP, browser STRING"),
    writes=Kafka("passthrough", key="browser"),
    mode="update",
)
