"""What tests of jobs on real Spark share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import Job
from headwater.spark.ownership import Run
from headwater.spark.progress import BatchProgress
from headwater.spark.runner import run_job

Drain = Callable[..., list[BatchProgress]]


@pytest.fixture
def drain(headwater_spark: SparkSession, tmp_path: Path) -> Drain:
    """Run a job until its source is drained, on a checkpoint of the test's own; gives what was reported of each batch."""

    def run(job: Job, checkpoint: Path | None = None) -> list[BatchProgress]:
        batches: list[BatchProgress] = []
        place = checkpoint or tmp_path / "checkpoint"
        run_job(headwater_spark, Run(job, "test", str(place)), stop=threading.Event(), on_batch=batches.append)
        return batches

    return run
