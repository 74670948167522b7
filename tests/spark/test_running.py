"""``Job.start``: the handle of a job that runs in this process."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from headwater import Checkpoint, Console, Files, Job, Memory, Rate
from headwater.checkpoint.lease import live_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import read_job_record, read_progress
from headwater.checkpoint.stop_request import REQUEST, request_stop
from headwater.core.errors import CheckpointBusy, JobFailed, JobRefused, ServiceUnreachable, UsageProblem
from headwater.jobs.loading import load_job
from headwater.spark import programs
from headwater.spark.internals import listener, query_end
from headwater.spark.programs import reference_of
from waiting_support import PATIENCE_SECONDS, wait_until


def numbers(rows: DataFrame) -> DataFrame:
    """The numbers, unchanged."""
    return rows


def per_parity(rows: DataFrame) -> DataFrame:
    """How many numbers are even, how many odd."""
    return rows.groupBy((rows.number % 2).alias("odd")).count()


def failing(rows: DataFrame) -> DataFrame:
    """Fail on the first row."""
    if rows.count():
        raise ValueError("seven is not a number")
    return rows


class Gate:
    """A per-batch function that reports the start of a batch and waits for permission to end it."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()
        self._calls = 0

    def __call__(self, rows: DataFrame) -> DataFrame:
        self._calls += 1
        if self._calls > 1:  # the first call is a trial without rows
            self.begun.set()
            assert self.open.wait(PATIENCE_SECONDS)
        return rows


@pytest.fixture
def source(tmp_path: Path) -> Files:
    (tmp_path / "in").mkdir()
    return Files(str(tmp_path / "in"), schema="number INT", options={"maxFilesPerTrigger": "1"})


def put(source: Files, file: int, *values: int) -> None:
    written = Path(source.path).parent / f"{file}.tmp"
    written.write_text("".join(json.dumps({"number": value}) + "\n" for value in values))
    os.utime(written, (1_700_000_000 + file,) * 2)
    written.rename(Path(source.path) / f"{file}.json")


def job_on(
    source: Files, name: str = "numbers", transform: Callable[..., DataFrame] = numbers, **fields: object
) -> Job:
    out = Files(str(Path(source.path).parent / f"{name}-out"), format="json")
    return Job(name, transform, reads=source, writes=out, **fields)  # type: ignore[arg-type]


def committed(checkpoint: Path) -> list[int]:
    return sorted(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))


def test_a_running_job(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """A running job holds the lease and records its batches; its checkpoint can be read meanwhile; stop frees it."""
    checkpoint = tmp_path / "checkpoint"
    put(source, 0, 1, 2, 3)
    job = job_on(source)
    running = job.start(headwater_spark, checkpoint)
    assert running.spark is headwater_spark
    assert running.query.id in {query.id for query in headwater_spark.streams.active}
    wait_until(lambda: running.progress)
    put(source, 1, 4)
    wait_until(lambda: running.totals.batches == 2)
    assert running.wait(0.01) is False
    assert running.status
    assert (running.is_active, running.failure, running.totals.rows) == (True, None, 4)
    assert "'numbers', running" in repr(running)
    lease = live_lease(LocalTree(checkpoint))
    assert lease is not None and lease.holder == "numbers"
    with pytest.raises(CheckpointBusy, match="numbers is running on this checkpoint") as busy:
        job.start(headwater_spark, checkpoint)
    assert busy.value.remedy == "call stop() on the running job, then try again"
    assert isinstance(running.checkpoint, Checkpoint)
    assert [batch.batch_id for batch in running.checkpoint.batches] == [0, 1]
    running.stop()
    assert not running.is_active
    assert not running.query.isActive
    assert running.wait() is True
    assert (running.status, running.failure) == ("", None)
    assert live_lease(LocalTree(checkpoint)) is None
    assert {batch: record.input_rows for batch, record in read_progress(LocalTree(checkpoint)).items()} == {0: 3, 1: 1}
    record = read_job_record(LocalTree(checkpoint))
    assert (record.job, record.mode, record.source) == (
        "numbers",
        "append",
        f"files:{source.path}?maxFilesPerTrigger=1",
    )


def test_a_memory_table_while_the_job_runs(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """The session of a running job can query its memory table, which has the rows of the last batch; others cannot."""
    job = Job("parity", per_parity, reads=source, writes=Memory("parity_now"), mode="complete")
    put(source, 0, 1, 2, 3)
    with job.start(headwater_spark, tmp_path / "checkpoint") as running:

        def rows() -> list[tuple[int, int]]:
            return [tuple(row) for row in running.spark.sql("SELECT odd, count FROM parity_now ORDER BY odd").collect()]

        wait_until(lambda: rows() == [(0, 1), (1, 2)])
        put(source, 1, 4, 6)
        wait_until(lambda: rows() == [(0, 3), (1, 2)])
        assert running.is_active
        assert not running.spark.newSession().catalog.tableExists("parity_now")


def test_a_batch_that_is_being_planned(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """A stop while Spark plans a batch does not interrupt that batch: it is committed."""
    for file in range(20):
        put(source, file, file)
    job, checkpoint = job_on(source, transform=per_parity, mode="complete"), tmp_path / "checkpoint"
    for _ in range(2):
        running = replace(job, writes=Memory("stopped")).start(headwater_spark, checkpoint)
        while running.status != "processing new data":
            assert running.is_active
        query_end.stop_after_batch(running.query)
        assert running.wait(60)
        assert committed(checkpoint) == sorted(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
    assert committed(checkpoint)


def test_stop_finishes_the_current_batch(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """A batch that is running when stop is called is committed."""
    gate, checkpoint = Gate(), tmp_path / "checkpoint"
    put(source, 0, 1)
    put(source, 1, 2)
    with job_on(source, "gated", gate, per_batch=True).start(headwater_spark, checkpoint) as running:
        assert gate.begun.wait(PATIENCE_SECONDS)
        running.stop(wait=False)
        assert running.is_stopping
        assert running.wait(0.5) is False, "the batch is still running"
        gate.open.set()
    assert committed(checkpoint) == [0]
    assert running.totals.batches == 1
    assert live_lease(LocalTree(checkpoint)) is None


def test_stop_now_while_the_process_of_custom_state_starts(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """An interruption that Spark reports as a failed start of its Python process is not a failure of the job."""
    purchases, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    purchases.mkdir()
    (purchases / "0.json").write_text('{"user":"ada","shopping":7}\n')
    reads = Files(str(purchases), schema="user STRING, shopping INT")
    job = replace(load_job("running-totals"), reads=reads, writes=Console())
    running = job.start(headwater_spark, checkpoint)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(
        call in query_end.calls_of(running.query) for call in ("PythonRunner.init(", "DataInputStream.readInt(")
    ):
        assert time.monotonic() < deadline, "no Python process was started"
    running.stop(now=True)
    assert (running.failure, committed(checkpoint)) == (None, [])
    with job.start(headwater_spark, checkpoint) as again:
        wait_until(lambda: again.totals.batches)
    assert committed(checkpoint) == [0]


def test_a_job_that_ends_by_itself(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """The checkpoint of a drained job is free even if the program never waits, and the next start resumes."""
    checkpoint = tmp_path / "checkpoint"
    put(source, 0, 1)
    job = job_on(source)
    running = job.start(headwater_spark, checkpoint, "available-now")
    assert running.job.trigger == "available-now"
    wait_until(lambda: live_lease(LocalTree(checkpoint)) is None)
    put(source, 1, 2, 3)
    with replace(job, trigger="available-now").start(headwater_spark, str(checkpoint)) as again:
        again.wait()
        again.stop()
    assert again.progress is not None
    assert (again.progress.batch_id, again.totals.rows) == (1, 2)
    assert running.wait(PATIENCE_SECONDS)


def test_a_failure(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """A failure while running is kept, raised by wait and at the end of a with block, and frees the checkpoint."""
    checkpoint = tmp_path / "checkpoint"
    put(source, 0, 7)
    job = job_on(source, "failing", failing, per_batch=True)
    running = job.start(headwater_spark, checkpoint)
    with pytest.raises(JobFailed, match="failing failed") as failed:
        running.wait()
    assert "seven is not a number" in failed.value.evidence["cause"]
    assert running.failure is failed.value
    assert "'failing', failed" in repr(running)
    assert failed.value.__cause__ is not None, "the exception of Spark"
    assert live_lease(LocalTree(checkpoint)) is None
    running.stop()
    with pytest.raises(JobFailed, match="failing failed"), job.start(headwater_spark, checkpoint) as running:
        wait_until(lambda: not running.is_active)
    with pytest.raises(KeyError), job.start(headwater_spark, checkpoint) as running:
        wait_until(lambda: not running.is_active)
        raise KeyError("of the program itself")


def test_two_jobs_on_one_session(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """Each job records its own batches and runs with its own settings; the session keeps its settings."""
    sizes = {0: 3, 1: 2, 2: 1, 3: 1}
    for file, size in sizes.items():
        put(source, file, *range(size))
    compact_interval = "spark.sql.streaming.fileSource.log.compactInterval"
    conf = {"spark.sql.shuffle.partitions": "3", compact_interval: "4"}
    first = Job("parity", per_parity, reads=source, writes=Memory("parity"), mode="complete", conf=conf)
    gate = Gate()
    second = job_on(source, "gated", gate, per_batch=True)
    before = headwater_spark.conf.getAll
    with (
        first.start(headwater_spark, tmp_path / "first") as one,
        second.start(headwater_spark, tmp_path / "second") as two,
    ):
        assert headwater_spark.conf.getAll == before
        wait_until(lambda: one.totals.batches == 4)
        one.stop()
        assert gate.begun.wait(PATIENCE_SECONDS)
        gate.open.set()
        wait_until(lambda: two.totals.batches == 4)
    assert sorted(row["count"] for row in headwater_spark.table("parity").collect()) == [2, 5]
    for checkpoint in ("first", "second"):
        progress = read_progress(LocalTree(tmp_path / checkpoint))
        assert {batch: record.input_rows for batch, record in progress.items()} == sizes
    partitions = [
        json.loads((tmp_path / checkpoint / "offsets" / "0").read_text().splitlines()[1])["conf"][
            "spark.sql.shuffle.partitions"
        ]
        for checkpoint in ("first", "second")
    ]
    assert partitions == ["3", "2"]
    logs = [(tmp_path / checkpoint / "sources" / "0" / "3.compact").exists() for checkpoint in ("first", "second")]
    assert logs == [True, False], "sources use the settings of their own job too"


def test_settings_that_spark_cannot_take(
    headwater_spark: SparkSession, source: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Settings of the process cannot be changed by a job on a running session; a warning names them."""
    put(source, 0, 1)
    job = job_on(source, conf={"spark.driver.memory": "9g", "spark.sql.adaptive.enabled": "true"})
    with caplog.at_level(logging.WARNING, "headwater"):
        job.start(headwater_spark, tmp_path / "checkpoint", "available-now").wait()
    (warned,) = caplog.messages
    assert "spark.driver.memory=9g" in warned
    assert "adaptive" not in warned


def test_refusals(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """What headwater run refuses, start refuses with the same errors, and leaves nothing behind."""
    job, checkpoint = job_on(source), tmp_path / "checkpoint"
    with pytest.raises(UsageProblem, match="'soon' is not a valid trigger"):
        job.start(headwater_spark, checkpoint, "soon")
    with pytest.raises(JobRefused, match="does not exist"):
        replace(job, reads=replace(source, path=str(tmp_path / "nowhere"))).start(headwater_spark, checkpoint)
    with pytest.raises(JobRefused, match="cannot run in update mode"):
        replace(job, mode="update").start(headwater_spark, checkpoint)
    with pytest.raises(JobRefused, match="there is no column `nmber`"):
        replace(job, transform=lambda rows: rows.select("nmber")).start(headwater_spark, checkpoint)
    with pytest.raises(JobRefused, match="has no end"):
        replace(job, reads=Rate()).start(headwater_spark, checkpoint, "available-now")
    assert not checkpoint.exists()
    assert headwater_spark.streams.active == []
    other = replace(job, name="other", writes=Memory("other"), trigger="available-now")
    other.start(headwater_spark, checkpoint).wait()
    with pytest.raises(JobRefused, match="belongs to other"):
        job.start(headwater_spark, checkpoint)
    assert live_lease(LocalTree(checkpoint)) is None


def test_unreachable_service(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A broker that does not answer is reported before anything starts."""
    job = load_job("browser-stats-stateful")
    unreachable = replace(job, reads=replace(job.reads, servers="127.0.0.1:1"))  # type: ignore[type-var]
    with pytest.raises(ServiceUnreachable):
        unreachable.start(headwater_spark, tmp_path / "checkpoint")


def test_the_session_of_the_process(
    headwater_spark: SparkSession, source: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a session, the one of the process is used; settings that another one lacks are reported once."""
    monkeypatch.chdir(tmp_path)
    put(source, 0, 1)
    job = replace(job_on(source), trigger="available-now")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        running = job.start()
        running.wait()
    assert warned == []
    assert running.spark.sparkContext is headwater_spark.sparkContext
    assert committed(tmp_path / ".headwater/checkpoints/numbers") == [0]


def test_spark_without_headwaters_internals(
    headwater_spark: SparkSession, source: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a Spark whose private classes have other names, a job reports its progress and can be stopped."""
    monkeypatch.setattr(listener, "probe", lambda _: False)
    monkeypatch.setattr(query_end, "PACKAGES", ("org.apache.spark.no.such",))
    put(source, 0, 1, 2)
    with job_on(source).start(headwater_spark, tmp_path / "checkpoint") as running:
        wait_until(lambda: running.progress)
    assert (running.totals.batches, running.totals.rows) == (1, 2)
    assert running.failure is None


def test_spark_connect_is_refused(source: Files) -> None:
    """A Spark Connect session is refused with what it lacks."""
    session = object.__new__(ConnectSession)
    with pytest.raises(JobRefused) as refused:
        job_on(source).start(session)  # type: ignore[arg-type]
    assert refused.value.code == "spark-connect"
    assert "the driver's JVM" in refused.value.evidence["missing"]


def test_where_a_job_is_defined(source: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later commands can load a job of the gallery, of a module or of a file; not one that only a program knows."""
    job = load_job("order-status")
    assert reference_of(replace(job, settings={"aggregate": False})) == "order-status"
    assert reference_of(job_on(source)) is None
    file = tmp_path / "mine.py"
    file.write_text(
        "from headwater import Job, Memory, Rate\n"
        "def rows(rows):\n    return rows\n"
        "ROWS = Job('rows', rows, reads=Rate(), writes=Memory('rows'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert reference_of(load_job("mine:ROWS")) == "mine:ROWS"
    assert reference_of(load_job(str(file))) == f"{file}:ROWS"
    assert programs.reference_of(replace(job, transform=numbers)) is None


def test_another_process_asks_a_job_to_stop(headwater_spark: SparkSession, source: Files, tmp_path: Path) -> None:
    """A request finishes the current batch and stops the job; with now it interrupts the batch, which runs again later."""
    checkpoint, gate = tmp_path / "checkpoint", Gate()
    for number in range(3):
        put(source, number, number)
    running = job_on(source, transform=gate, per_batch=True).start(headwater_spark, checkpoint, keep_every="1h")
    assert gate.begun.wait(60)
    asked = Checkpoint(checkpoint)
    request, _ = request_stop(asked.files)
    wait_until(lambda: running.is_stopping)
    state = running.query._jsq.streamingQuery().state()
    wait_until(lambda: state.get().toString() == "TERMINATED", "Spark to end after the current batch")
    assert running.is_active
    assert running.stop_request == request
    gate.open.set()
    assert running.wait(60)
    assert committed(checkpoint) == [0]
    assert [(point.name, point.automatic) for point in asked.kept()] == [("batch-0", True)]
    assert asked.stop() is True  # nothing is running any more

    gate = Gate()
    running = job_on(source, transform=gate, per_batch=True).start(headwater_spark, checkpoint)
    assert not (checkpoint / REQUEST).exists()
    assert gate.begun.wait(60)
    threading.Timer(3, gate.open.set).start()  # a function in Python cannot be interrupted while it waits
    assert asked.stop(now=True) is True
    assert (running.is_active, running.failure) == (False, None)
    assert committed(checkpoint) == [0]
    assert not (checkpoint / REQUEST).exists()
    with job_on(source).start(headwater_spark, checkpoint, trigger="available-now") as again:
        again.wait()
    assert committed(checkpoint) == [0, 1, 2]
