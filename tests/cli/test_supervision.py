"""What ``headwater run`` shows of its jobs, and which failures stop which jobs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.checkpoint.record import ProgressRecord
from headwater.cli import supervision
from headwater.cli.output import StatusLine
from headwater.cli.run_log import TextLog
from headwater.cli.supervision import SupervisedJob, Supervision
from headwater.core.errors import HeadwaterError, JobFailed, JobRefused
from headwater.jobs.endpoints import Console, Rate
from headwater.jobs.job import Job
from headwater.spark.ownership import Run
from headwater.spark.progress import Totals


class Handle:
    """A running job without Spark: it ends when its time is up, with a failure or without, or when it is stopped."""

    def __init__(self, job: Job, polls: int, failure: HeadwaterError | None = None) -> None:
        self.job, self.totals, self.status = job, Totals(batches=2, rows=5), "waiting for data"
        self.progress = ProgressRecord(1, 0)
        self.is_stopping = False
        self.stop_request = None
        self._polls, self._failure = polls, failure

    @property
    def is_active(self) -> bool:
        self._polls -= 1
        return self._polls >= 0 and not self.is_stopping

    @property
    def failure(self) -> HeadwaterError | None:
        return None if self.is_stopping else self._failure

    def stop(self, *, wait: bool = True) -> None:
        self.is_stopping = True


def supervise(
    outcomes: dict[str, Any], capsys: pytest.CaptureFixture[str], **options: Any
) -> tuple[list[str], Supervision]:
    """Run jobs that take a number of polls, fail after two, or cannot start; return the lines and the supervision."""
    jobs = [
        SupervisedJob(Run(Job(name, lambda rows: rows, reads=Rate(), writes=Console()), name, f"/{name}"))
        for name in outcomes
    ]

    def start(run: Run, *, on_batch: Any, warn: Any, followers: Any) -> Any:
        outcome = outcomes[run.job.name]
        if isinstance(outcome, JobRefused):
            raise outcome
        on_batch(ProgressRecord(0, 0, input_rows=3))
        failed = isinstance(outcome, HeadwaterError)
        return Handle(run.job, 2 if failed else outcome, outcome if failed else None)

    log = TextLog(StatusLine(), prefixed=len(jobs) > 1)
    supervised = Supervision(jobs, options.pop("stop", threading.Event()), log, **options)
    supervised.run(start)
    return capsys.readouterr().err.splitlines(), supervised


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "POLL_SECONDS", 0.0)


BROKEN = JobFailed("job-failed", "b failed", evidence={"cause": "seven"})
TOTALS = "2 batches  5 rows  dropped 0  malformed 0"


def test_a_single_job(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of a single job do not repeat its name, and its failure is left to the command."""
    lines, done = supervise({"a": 3}, capsys)
    assert [line.partition("  ")[0] for line in lines] == ["batch 0", "a: no more data"]
    assert done.failures == []
    lines, done = supervise({"b": BROKEN}, capsys)
    assert [line.partition("  ")[0] for line in lines] == ["batch 0"]
    assert done.failures == [BROKEN]


def test_one_of_several_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """The others run to their end; the failure is shown when it happens and again in the summary."""
    lines, done = supervise({"a": 5, "b": BROKEN, "c": 3}, capsys)
    assert [line.split("  ")[0] for line in lines[:3]] == ["a: batch 0", "b: batch 0", "c: batch 0"]
    assert lines[3:] == [
        "b: error[job-failed]: b failed",
        "  cause  seven",
        f"a: no more data  {TOTALS}",
        f"b: failed (job-failed)  {TOTALS}",
        f"c: no more data  {TOTALS}",
    ]
    assert done.failures == [BROKEN]


def test_fail_together(capsys: pytest.CaptureFixture[str]) -> None:
    """With --fail-together a failure stops the other jobs after their current batches."""
    lines, _ = supervise({"a": 1000, "b": BROKEN}, capsys, fail_together=True)
    assert "stopping the other jobs after their current batches, because b failed" in lines
    assert lines[-2:] == [f"a: stopped  {TOTALS}", f"b: failed (job-failed)  {TOTALS}"]


def test_a_job_that_cannot_start(capsys: pytest.CaptureFixture[str]) -> None:
    """A job that Spark refuses fails alone; with --fail-together, jobs after it do not start."""
    refused = JobRefused("unknown-column", "there is no column `x`")
    lines, done = supervise({"a": refused, "b": 2}, capsys)
    assert lines[-2:] == ["a: failed (unknown-column)", f"b: no more data  {TOTALS}"]
    assert done.failures == [refused]
    lines, _ = supervise({"a": refused, "b": 2}, capsys, fail_together=True)
    assert lines[-2:] == ["a: failed (unknown-column)", "b: not started"]


def test_stopped_by_a_signal(capsys: pytest.CaptureFixture[str]) -> None:
    """A stop request reaches every job, and no further job starts."""
    stop = threading.Event()
    stop.set()
    lines, _ = supervise({"a": 1000, "b": 1000}, capsys, stop=stop)
    assert lines == ["a: not started", "b: not started"]
