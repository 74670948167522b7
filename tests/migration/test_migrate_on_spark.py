"""Migrated state on real Spark: the stream continues as if the new code had run from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from migration import changed_jobs
from migration.changed_jobs import (
    count_rows,
    largest,
    letters,
    total,
    updated,
    windows,
)
from migration.migrating import Story, follow
from timemachine.spark_runs import STORES

# Python workers do not have the folder of the tests on their path.
cloudpickle.register_pickle_by_value(changed_jobs)


def event(user: str, amount: int, minute: int, kind: str = "view") -> dict[str, Any]:
    return {"user": user, "kind": kind, "amount": amount, "at": f"2024-05-01T10:{minute:02}:00Z"}


BEFORE = [
    {"events": [event("ann", 1, 1), event("bob", 2, 2), event("cem", 5, 6)]},
    {"events": [event("ann", 3, 3, "buy"), event("dan", 4, 7)]},
]
AFTER = [
    {"events": [event("ann", 10, 4), event("eve", 7, 8), event("cem", 1, 9)]},
    {"events": [event("bob", 1, 9), event("dan", 2, 8)]},
]


def average() -> Any:
    return F.avg("amount").alias("mean")


def kinds() -> Any:
    return F.collect_set("kind").alias("kinds")


def as_double(rows: Any) -> Any:
    return rows.withColumn("amount", F.expr("double(amount)"))


STORIES = {
    "aggregation dropped": Story(
        "dropped", updated(windows(count_rows, total, largest)), updated(windows(count_rows, largest)), BEFORE, AFTER
    ),
    "aggregation reordered": Story(
        "reordered",
        updated(windows(total, letters, count_rows)),
        updated(windows(count_rows, letters, total)),
        BEFORE,
        AFTER,
    ),
    "aggregation widened": Story(
        "widened",
        updated(windows(count_rows, total)),
        updated(windows(count_rows, total, before=as_double)),
        BEFORE,
        AFTER,
    ),
    "aggregation set": Story(
        "set",
        updated(windows(count_rows, total)),
        updated(windows(count_rows, total, average)),
        BEFORE,
        AFTER,
        {"sum_2": "value.sum", "count_2": "value.count"},
    ),
}


@pytest.mark.parametrize(("name", "store"), [("aggregation set", "hdfs")])
def test_a_stream_continues_from_migrated_state(
    headwater_spark: SparkSession, tmp_path: Path, name: str, store: str
) -> None:
    """The continued stream emits what the new code emits over all records; a rewind brings the old code's state back."""
    follow(headwater_spark, tmp_path, STORIES[name], store)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", STORIES)
def test_all_changes_on_all_stores(headwater_spark: SparkSession, tmp_path: Path, name: str, store: str) -> None:
    """The same for all changes on all stores."""
    follow(headwater_spark, tmp_path, STORIES[name], store)
