"""Changed code on an old checkpoint: the verdict of ``check``, and what real Spark does with it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater import Files, Job
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.plan_record import RecordedPlan, write_plan
from headwater.migration.comparison import Comparison
from headwater.spark.code_check import CurrentCode, check_code
from headwater.spark.ownership import Run, job_record
from headwater.spark.prepared import prepare_job
from headwater.spark.session import temporary_settings
from migration import changed_jobs
from migration.changed_jobs import CHANGES, Change
from timemachine.spark_runs import STORES

# Python workers do not have the folder of the tests on their path.
cloudpickle.register_pickle_by_value(changed_jobs)

SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
TIMES = ("2024-05-01T10:01:00Z", "2024-05-01T10:07:00Z")


def feed(place: Path, number: int) -> None:
    """Put one file into each inbox."""
    events = [
        {"user": user, "kind": kind, "amount": amount, "at": TIMES[number]}
        for user, kind, amount in (("ann", "view", 1), ("bob", "buy", 2), ("ann", "buy", 3))
    ]
    clicks = [{"ad": "view", "clicker": "cem", "clicked_at": TIMES[number]}]
    for name, rows in (("events", events), ("more", events), ("clicks", clicks)):
        file = place / name / f"{number}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))


def located(job: Job, place: Path) -> Job:
    """Return the job with its inboxes below a folder."""
    files = {name: source for name, source in job.sources.items() if isinstance(source, Files)}
    return job.with_inputs({name: replace(source, path=str(place / source.path)) for name, source in files.items()})


def run_batch(spark: SparkSession, job: Job, checkpoint: Path, settings: Mapping[str, str]) -> CurrentCode:
    """Run one batch with plain Spark on a checkpoint."""
    with temporary_settings(spark, {**SMALL, **settings}):
        prepared = prepare_job(spark, job)
        writer = prepared.frame.writeStream.format("noop").outputMode(job.mode).trigger(once=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
        return CurrentCode.of(prepared)


class OldCheckpoints:
    """Checkpoints that the old code of a change wrote, each made once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._made: dict[tuple[int, str], Path] = {}

    def copy_for(self, change: Change) -> Path:
        """Return a folder with the inboxes and a copy of the checkpoint."""
        key = (id(change.old), change.store)
        if key not in self._made:
            self._made[key] = self._make(change)
        checkpoint = self._made[key] / change.name
        shutil.copytree(self._made[key] / "checkpoint", checkpoint)
        return checkpoint

    def _make(self, change: Change) -> Path:
        place = self._folder / str(len(self._made))
        feed(place, 0)
        job = located(change.old, place)
        code = run_batch(self._spark, job, place / "checkpoint", STORES[change.store])
        files = LocalTree(place / "checkpoint")
        files.write(JOB_FILE, job_record(Run(job, "jobs.py:CHANGED", files.location)).to_bytes())
        assert code.operators is not None
        write_plan(files, RecordedPlan(0, code.operators, self._spark.version))
        feed(place, 1)
        return place


@pytest.fixture(scope="module")
def old_checkpoints(headwater_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> OldCheckpoints:
    return OldCheckpoints(headwater_spark, tmp_path_factory.mktemp("old"))


def judge(spark: SparkSession, change: Change, checkpoint: Path) -> Comparison:
    """Return the verdict of ``check``."""
    job = located(change.new, checkpoint.parent)
    with temporary_settings(spark, {**SMALL, **STORES[change.store], **change.conf}):
        return check_code(spark, job, LocalTree(checkpoint), reference="jobs.py:CHANGED", given=change.conf)


def starts(spark: SparkSession, change: Change, checkpoint: Path) -> bool:
    """Return whether Spark runs a batch of the new code on the old checkpoint."""
    job = located(change.new, checkpoint.parent)
    try:
        run_batch(spark, job, checkpoint, {**STORES[change.store], **change.conf})
    except PySparkException:
        return False
    return True


def as_parameters(changes: list[Change]) -> list[object]:
    return [pytest.param(one, id=one.name, marks=() if one.quick else pytest.mark.slow) for one in changes]


@pytest.mark.parametrize("change", as_parameters(CHANGES))
def test_verdict_is_that_of_spark(
    change: Change, headwater_spark: SparkSession, old_checkpoints: OldCheckpoints
) -> None:
    """The verdict is the expected one, and Spark runs a batch exactly if the verdict says that it would."""
    checkpoint = old_checkpoints.copy_for(change)
    comparison = judge(headwater_spark, change, checkpoint)
    shown = json.dumps(comparison.as_dict(), indent=1, ensure_ascii=False)
    started = starts(headwater_spark, change, checkpoint)
    assert (comparison.verdict, comparison.starts) == (change.verdict, started), shown
