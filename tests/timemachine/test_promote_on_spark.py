"""A promotion on real Spark: a fork with changed code runs beside the original, takes its place and continues."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import run_here
from headwater import Files, Job
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.spark.ownership import Run, checkpoint_location
from headwater.spark.runner import start_job
from headwater.spark.running import RunningJob
from timemachine.spark_runs import Inbox
from waiting_support import wait_until


def upper(rows: DataFrame) -> DataFrame:
    """Return the words in upper case."""
    return rows.select(F.upper("word").alias("word"), F.length("word").alias("letters"))


def corrected(rows: DataFrame) -> DataFrame:
    """Return the same, but without counting spaces."""
    return rows.select(F.upper("word").alias("word"), F.length(F.translate("word", " ", "")).alias("letters"))


def test_a_fork_with_changed_code_is_promoted(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The rows that differ are shown, the running original stops, and its path then continues with the fork."""
    spark, inbox = headwater_spark, Inbox(tmp_path / "in", "word STRING")
    reads = Files(str(inbox.folder), format="json", schema=inbox.schema, options={"maxFilesPerTrigger": "1"})
    original, fork = tmp_path / "original", tmp_path / "fork"

    def job(code, out: str) -> Job:
        return Job("words", code, reads=reads, writes=Files(str(tmp_path / out), format="json"), mode="append")

    def start(one: Job, checkpoint: Path | str) -> RunningJob:
        return start_job(spark, Run(one, None, str(checkpoint)))

    def reached(checkpoint: Path | str, files: int) -> None:
        log = LocalTree(Path(checkpoint))
        wait_until(lambda: _files_read(log) >= files, f"{files} files at {checkpoint}")

    old = start(job(upper, "out"), original)
    inbox.put([{"word": "one two"}])
    inbox.put([{"word": "three"}])
    reached(original, 2)
    assert run_here("fork", original, fork, "--at", 0, "--sink", f"files:{tmp_path / 'new'}").returncode == 0
    new = start(job(corrected, "new"), fork)
    reached(fork, 2)
    inbox.put([{"word": "four five"}])
    reached(original, 3)
    done = run_here("promote", fork, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout.splitlines()[0])
    assert plan["running"] == {"original": True, "fork": True}
    differ = [pair for part in plan["compared"] for pair in part["differ"]]
    assert [(pair["before"]["letters"], pair["after"]["letters"]) for pair in differ] == [(9, 8)]
    assert old.wait(60)
    assert checkpoint_location(str(original), job(corrected, "new")) == str(fork)
    inbox.put([{"word": "six"}])
    reached(fork, 4)
    new.stop()
    inbox.put([{"word": "seven"}])
    again = start(job(corrected, "new"), checkpoint_location(str(original), job(corrected, "new")))
    reached(fork, 5)
    again.stop()
    words = sorted(row.word for row in spark.read.json(str(tmp_path / "new")).collect())
    assert words == ["FOUR FIVE", "SEVEN", "SIX", "THREE"]


def _files_read(files: LocalTree) -> int:
    """Return how many files committed batches have read."""
    history = History(files)
    last = history.last_committed
    if last is None:
        return 0
    return len(history.input_files("0", None, history.batch(last).sources[0].end) or ())
