"""Rows of a batch as plain values, in the shape that Spark's own JSON has."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.jobs.job import Job

Rows = list[dict[str, Any]]


def captured_rows(frame: DataFrame) -> Rows:
    """All rows, nulls included. Runs the frame once."""
    columns = [F.col(f"`{name}`") for name in frame.columns]
    texts = frame.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})).collect()
    return [json.loads(text[0]) for text in texts]


def capturing(job: Job, keep: Callable[[int, Rows], None]) -> Callable[[DataFrame, int], None]:
    """A ``foreachBatch`` function that stands in for the job's sink."""

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        keep(batch_id, captured_rows(job(batch) if job.per_batch else batch))

    return on_batch
