"""The job of ``make_state.py`` before and after a change of its code, and the same job on Kafka."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import Console, Files, Job, Kafka

SCHEMA = "at TIMESTAMP, user STRING"


def visits(rows: DataFrame) -> DataFrame:
    """Count the visits of each user in each window."""
    return _windows(rows).agg(F.count("*").alias("visits"), F.max("at").alias("last"))


def changed_visits(rows: DataFrame) -> DataFrame:
    """Also keep the first visit."""
    return _windows(rows).agg(F.count("*").alias("visits"), F.max("at").alias("last"), F.min("at").alias("first"))


def _windows(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "10 days").groupBy(F.window("at", "10 minutes"), "user")


VISITS = Job(
    "visit-counts",
    visits,
    reads=Files("input", format="parquet", schema=SCHEMA),
    writes=Console(),  # no window closes before ten days have passed, so nothing is printed
    mode="append",
)
CHANGED = replace(VISITS, transform=changed_visits)
FROM_KAFKA = replace(VISITS, reads=Kafka("visit-counts", schema=SCHEMA))
