"""A promotion on real Spark: a fork with changed code runs beside the original, takes its place and continues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import run_here
from headwater import Delta, Files, Job
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.spark.ownership import Run, checkpoint_location
from headwater.spark.runner import start_job
from headwater.spark.running import RunningJob
from headwater.spark.session import temporary_settings
from timemachine.spark_runs import EAGER, Inbox
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
    done = run_here("promote", fork, "--keep-sink", "--yes", "--json")
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


@pytest.mark.parametrize("kind", ["files", pytest.param("delta", marks=pytest.mark.slow)])
def test_the_fork_continues_where_the_original_wrote(headwater_spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Readers see the rows of the original up to the fork and then those of the fork; undo gives both their own again."""
    spark, inbox = headwater_spark, Inbox(tmp_path / "in", "word STRING")
    reads = Files(str(inbox.folder), format="json", schema=inbox.schema, options={"maxFilesPerTrigger": "1"})
    original, fork = tmp_path / "original", tmp_path / "fork"

    def run(code, out: str, checkpoint: Path) -> None:
        place = str(tmp_path / out)
        writes = Files(place, format="json") if kind == "files" else Delta(place)
        job = Job("words", code, reads=reads, writes=writes, mode="append", trigger="available-now")
        with temporary_settings(spark, EAGER):
            assert start_job(spark, Run(job, None, checkpoint_location(str(checkpoint), job))).wait(120)

    def put(*words: str) -> None:
        for word in words:
            inbox.put([{"word": word}])

    def letters(out: str) -> list[int]:
        reader = spark.read.format("json" if kind == "files" else "delta")
        return sorted(row.letters for row in reader.load(str(tmp_path / out)).collect())

    put("a ", "bb ", "ccc ", "dddd ")
    run(upper, "out", original)
    assert run_here("fork", original, fork, "--at", 1, "--sink", f"{kind}:{tmp_path / 'new'}").returncode == 0
    run(corrected, "new", fork)
    put("eeeee ")
    run(upper, "out", original)
    before = letters("out")
    assert before == [2, 3, 4, 5, 6]
    done = run_here("promote", fork, "--lag", 1, "--yes")
    assert done.returncode == 0, done.stderr
    sink = f"'files:{tmp_path / 'out'}?format=json'" if kind == "files" else f"delta:{tmp_path / 'out'}"
    assert f"--checkpoint {original} --sink {sink}" in done.stderr
    assert letters("out") == [2, 3, 3, 4]
    put("ffffff ", "ggggggg ")
    run(corrected, "out", original)
    assert letters("out") == [2, 3, 3, 4, 5, 6, 7]
    assert run_here("fsck", fork).returncode == 0
    refused = run_here("undo", fork, "--yes")
    assert "error[part-of-a-promotion]" in refused.stderr
    undone = run_here("undo", original, "--yes")
    assert undone.returncode == 0, undone.stderr
    assert letters("out") == before
    copied = [2, 3] if kind == "delta" else []
    assert letters("new") == sorted([*copied, 3, 4, 5, 6, 7])
    run(corrected, "new", fork)
    put("hhhhhhhh ")
    run(upper, "out", original)
    run(corrected, "new", fork)
    assert letters("out") == [2, 3, 4, 5, 6, 7, 8, 9]
    assert letters("new") == sorted([*copied, 3, 4, 5, 6, 7, 8])
    for checkpoint in (original, fork):
        assert run_here("fsck", checkpoint).returncode == 0


def _files_read(files: LocalTree) -> int:
    """Return how many files committed batches have read."""
    history = History(files)
    last = history.last_committed
    if last is None:
        return 0
    return len(history.input_files("0", None, history.batch(last).sources[0].end) or ())
