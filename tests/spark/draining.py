"""Run a job until there is nothing more to read."""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import SparkSession

from headwater import Job
from headwater.checkpoint.record import ProgressRecord
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job


def drain_source(spark: SparkSession, job: Job, checkpoint: Path) -> list[ProgressRecord]:
    """Run a job with a trigger that ends by itself, and return the progress of each batch."""
    batches: list[ProgressRecord] = []
    run_job(spark, Run(job, job.name, str(checkpoint)), stop=threading.Event(), on_batch=batches.append)
    return batches
