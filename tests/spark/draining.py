"""Run a job until there is nothing more to read."""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import SparkSession

from headwater import Job
from headwater.spark.ownership import Run
from headwater.spark.progress import BatchProgress
from headwater.spark.runner import run_job


def drained(spark: SparkSession, job: Job, checkpoint: Path) -> list[BatchProgress]:
    """What was reported of each batch."""
    batches: list[BatchProgress] = []
    run_job(spark, Run(job, job.name, str(checkpoint)), stop=threading.Event(), on_batch=batches.append)
    return batches
