"""What a run does about changed code: it refuses what Spark would not notice, and explains what Spark refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import Checkpoint, Console, Files, Job
from headwater.checkpoint.layout import JOB_FILE, PLANS_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.plan_record import read_plans
from headwater.checkpoint.record import read_job_record
from headwater.core.errors import JobFailed, JobRefused
from headwater.spark.code_check import NEVER_RECORDED, NO_RECORD, CurrentCode
from headwater.spark.prepared import prepare_job


def totals(rows: DataFrame, *, factor: int = 1, count: bool = False) -> DataFrame:
    """Totals per user."""
    amounts = rows.select("user", (F.col("amount") * factor).alias("amount")) if factor != 1 else rows
    return amounts.groupBy("user").agg(
        F.sum("amount").alias("total"), *([F.avg("amount").alias("mean")] if count else [])
    )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"user": "ann", "amount": 1}\n')
    source = Files(str(tmp_path / "in"), schema="user STRING, amount INT")
    return Job("totals", totals, reads=source, writes=Console(), mode="update", trigger="available-now")


def test_silent_change_is_refused(drain, tmp_path: Path, job: Job, headwater_spark: SparkSession) -> None:
    """Code that continues old sums with another expression is refused; the checkpoint and its record stay as they are."""
    drain(job)
    files = LocalTree(tmp_path / "checkpoint")
    before = files.read(PLANS_FILE)
    changed = job.with_settings({"factor": "100"})
    with pytest.raises(JobRefused) as refused:
        drain(changed)
    assert refused.value.code == "changed-meaning"
    assert refused.value.evidence["operator 0 (aggregation): aggregates"] == "sum(amount)  →  sum((amount * 100))"
    assert files.read(PLANS_FILE) == before
    comparison = Checkpoint(tmp_path / "checkpoint").check(changed)
    assert comparison.verdict == "changes-meaning"
    assert "sum((amount * 100))" in repr(comparison)
    running = changed.start(headwater_spark, tmp_path / "checkpoint", accept_change=True)
    assert running.wait(60)
    assert read_plans(files)[-1].accepted == (
        "operator 0 (aggregation): aggregates: sum(amount) → sum((amount * 100))",
    )


def test_refusal_of_spark_names_the_command(drain, tmp_path: Path, job: Job) -> None:
    """Without a record Spark refuses the state itself, and the error names the command that shows the differences."""
    drain(job)
    files = LocalTree(tmp_path / "checkpoint")
    files.remove(PLANS_FILE)
    (tmp_path / "in" / "b.json").write_text('{"user": "bob", "amount": 2}\n')
    changed = job.with_settings({"count": "true"})
    with pytest.raises(JobFailed) as failed:
        drain(changed)
    assert failed.value.code == "state-incompatible"
    assert "value schema does not match" in failed.value.evidence["cause"]
    assert f"headwater check totals --checkpoint {tmp_path}/checkpoint" in (failed.value.remedy or "")
    files.remove(PLANS_FILE)
    comparison = Checkpoint(tmp_path / "checkpoint").check(changed)
    assert comparison.verdict == "needs-migrate"
    assert comparison.notes[0] == NO_RECORD
    assert "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE" in comparison.notes[1]


def test_run_records_an_attached_query(drain, tmp_path: Path, job: Job) -> None:
    """An attached program never records the meaning of its state. The command that the note names does."""
    drain(job)
    files = LocalTree(tmp_path / "checkpoint")
    files.remove(PLANS_FILE)
    files.write(JOB_FILE, replace(read_job_record(files), job="orders", attached=True).to_bytes())
    changed = job.with_settings({"count": "true"})
    run = f"headwater run totals --checkpoint {tmp_path}/checkpoint"
    assert Checkpoint(tmp_path / "checkpoint").check(changed).notes[0] == NEVER_RECORDED.format(run=run)
    (tmp_path / "in" / "b.json").write_text('{"user": "bob", "amount": 2}\n')
    drain(job)
    assert read_plans(files)
    comparison = Checkpoint(tmp_path / "checkpoint").check(changed)
    assert comparison.verdict == "needs-migrate"
    assert not any("record" in note for note in comparison.notes)


def test_kafka_job_is_planned_without_its_broker(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A job on Kafka is compared with a checkpoint although no broker is running."""
    from headwater.jobs.loading import load_job

    found = CurrentCode.of(prepare_job(headwater_spark, load_job("browser-stats-stateful")))
    assert found.operators is not None
    (operator,) = found.operators
    assert operator.facts == {
        "keys": ("browser", "window(eventTime, 5 minutes)"),
        "aggregates": ("count(1)", "max(eventTime)"),
        "buffer sizes": ("1", "1"),
        "filters": ("isnotnull(eventTime)",),
        "watermark": ("eventTime 20 minutes",),
    }
