"""Dropped records of file sources, found again and saved whatever else fails."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import Console, Files, Job
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import ChangeRefused, InternalError, ServiceUnreachable
from headwater.spark.dropped.dead_letters import POSITION_FILE, DeadLetterCollector
from headwater.spark.dropped.search import find_dropped
from headwater.spark.dropped.store import dead_letter_sink
from headwater.spark.ownership import Run
from headwater.spark.runner import run_job
from spark.draining import drain_source

FOLDER = "my visits {a,b} [2026] 100%"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that reads one file per batch. Every file has a record that cannot be decoded."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    for number in range(3):
        file = folder / f"{number} ?*.json"
        file.write_text(f'{{"id": {number}}}\nbad {number}\n')
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads the oldest first
    source = Files(
        str(folder).replace("{", r"\{").replace("[", r"\["), schema="id INT", options={"maxFilesPerTrigger": "1"}
    )
    return Job(
        "ids", lambda rows: rows, reads=source, writes=Console(), mode="append", trigger="available-now",
        dead_letters=f"files:{tmp_path / 'dead'}",
    )  # fmt: skip


def saved(tmp_path: Path) -> list[str]:
    return sorted(json.loads(line)["value"] for file in (tmp_path / "dead").iterdir() for line in file.open())


def test_files_whose_names_spark_encodes(headwater_spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """Records are found again in files whose paths have spaces, percent signs and characters of patterns."""
    drain_source(headwater_spark, job, tmp_path / "checkpoint")
    assert saved(tmp_path) == ["bad 0", "bad 1", "bad 2"]


def test_an_input_file_that_was_deleted(headwater_spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """A batch whose file is gone is skipped with a warning, or refused if it was asked for; the others are read."""
    drain_source(headwater_spark, replace(job, dead_letters=None), tmp_path / "checkpoint")
    (tmp_path / FOLDER / "1 ?*.json").unlink()
    files, warnings = LocalTree(tmp_path / "checkpoint"), list[str]()
    found = find_dropped(files, job, [0, 1, 2], skip_unreadable=True, warn=warnings.append)
    assert [record.value for record in found.records] == ["bad 0", "bad 2"]
    (warning,) = warnings
    assert warning.startswith(
        "warning: batch 1 is skipped: cannot read the records of batch 1 again (Path does not exist"
    )
    with pytest.raises(ChangeRefused, match="cannot read the records of batch 1 again") as refused:
        find_dropped(files, job, [1])
    assert refused.value.code == "cannot-reread"


def test_a_display_that_fails(headwater_spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """Records are saved although the batches cannot be printed, nor that they cannot."""

    def fail(_: object) -> None:
        raise BrokenPipeError

    run_job(
        headwater_spark,
        Run(job, job.name, str(tmp_path / "checkpoint")),
        stop=threading.Event(),
        on_batch=fail,
        warn=fail,
    )
    assert saved(tmp_path) == ["bad 0", "bad 1", "bad 2"]


class UnreachableTree(LocalTree):
    """A checkpoint whose store does not take the position of dead letters."""

    def write(self, path: str, data: bytes) -> None:
        if path == POSITION_FILE:
            raise ServiceUnreachable("store-unreachable", "cannot reach the store")
        super().write(path, data)


def test_a_position_that_cannot_be_written(headwater_spark: SparkSession, job: Job, tmp_path: Path) -> None:
    """Records are saved while the store refuses the position, whose failure is reported once."""
    drain_source(headwater_spark, replace(job, dead_letters=None), tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / POSITION_FILE).unlink(missing_ok=True)
    warnings: list[str] = []
    collector = collector_of(headwater_spark, job, UnreachableTree(tmp_path / "checkpoint"), warnings)
    collector.start()
    for number in range(3):
        collector.on_batch(ProgressRecord(number, at_ms=0, malformed=1))
    collector.close()
    assert collector.problem is None
    assert saved(tmp_path) == ["bad 0", "bad 1", "bad 2"]
    assert warnings == [f"warning: {POSITION_FILE} could not be written: cannot reach the store"]


def test_an_unexpected_failure_of_the_thread(
    headwater_spark: SparkSession, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that ends early is reported at once, and is the failure of the job."""
    warnings: list[str] = []
    collector = collector_of(headwater_spark, job, LocalTree(tmp_path / "checkpoint"), warnings)
    monkeypatch.setattr(collector, "_save_or_defer", lambda batch_id: {}[batch_id])
    collector.start()
    collector.on_batch(ProgressRecord(0, at_ms=0, malformed=1))
    collector.close()
    assert isinstance(collector.problem, InternalError)
    assert warnings == ["warning: dropped records are no longer saved: 0"]


def collector_of(spark: SparkSession, job: Job, files: LocalTree, warnings: list[str]) -> DeadLetterCollector:
    return DeadLetterCollector(spark, job, files, dead_letter_sink(str(job.dead_letters)), warnings.append)
