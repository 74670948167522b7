"""Fixtures for tests of jobs on real Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import Job
from headwater.checkpoint.record import ProgressRecord
from spark.draining import drain_source

Drain = Callable[..., list[ProgressRecord]]


@pytest.fixture
def drain(headwater_spark: SparkSession, tmp_path: Path) -> Drain:
    """Run a job until its source is drained, on the test's own checkpoint; returns the progress of each batch."""

    def run(job: Job, checkpoint: Path | None = None) -> list[ProgressRecord]:
        return drain_source(headwater_spark, job, checkpoint or tmp_path / "checkpoint")

    return run
