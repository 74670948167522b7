"""Attached sessions: what is recorded of each query, and that recording never harms one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery, StreamingQueryManager

import headwater
from headwater import Files, Job
from headwater.checkpoint.lease import LOCK, live_lease, refuse_if_held
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import PROGRESS_FILE, read_job_record, read_progress
from headwater.checkpoint.stop_request import REQUEST, StopRequest, request_stop, wait_until_stopped
from headwater.core.errors import CheckpointBusy, UsageProblem
from headwater.jars.own_jar import own_jar
from headwater.spark import attach
from headwater.spark.attach import Attachment
from headwater.spark.internals.query_recorder import _new_listener
from headwater.spark.progress import progress_record
from headwater.timemachine.keeping import KeepPolicy
from spark.draining import drain_source
from waiting_support import wait_until

HOLDER = """
import fcntl, pathlib, sys
path = pathlib.Path(sys.argv[1])
path.parent.mkdir(parents=True, exist_ok=True)
held = path.open("a+b")
fcntl.lockf(held, fcntl.LOCK_EX)
print(flush=True)
input()
"""

Start = Callable[..., StreamingQuery]


@pytest.fixture
def attached(headwater_spark: SparkSession) -> Iterator[Attachment]:
    handle = headwater.attach(headwater_spark)
    yield handle
    handle.detach()


@pytest.fixture
def start(headwater_spark: SparkSession, tmp_path: Path) -> Iterator[Start]:
    """A function that starts a query on ``rows``, a folder with one file, and waits for its first batch."""
    (tmp_path / "rows").mkdir()
    put(tmp_path, 0)
    started = []

    def start(name: str | None = "counts", *, checkpoint: Path | None = None, **options: str) -> StreamingQuery:
        rows = headwater_spark.readStream.schema("at TIMESTAMP").json(str(tmp_path / "rows"))
        counts = rows.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute")).count()
        writer = counts.writeStream.format("noop").outputMode("update").options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint or tmp_path / "checkpoint"))
        query = (writer.queryName(name) if name else writer).start()
        started.append(query)
        query.processAllAvailable()
        return query

    yield start
    for query in started:
        query.stop()


def put(folder: Path, number: int) -> None:
    draft = folder / f"{number}.draft"  # a query that is running must not find half a file
    draft.write_text(f'{{"at": "2026-01-01T10:0{number}:00Z"}}\n' * 2)
    draft.rename(folder / "rows" / f"{number}.json")


def test_a_query_is_recorded_as_a_job_is(attached: Attachment, start: Start, tmp_path: Path) -> None:
    """The records of the Java listener are those that Python makes of the same reports; the lease protects the query."""
    files = LocalTree(tmp_path / "checkpoint")
    query = start()
    put(tmp_path, 1)
    query.processAllAvailable()
    reports = {report["batchId"]: report for report in map(as_dict, query.recentProgress) if report["numInputRows"]}
    wait_until(lambda: reports.keys() <= read_progress(files).keys())
    recorded = read_progress(files)
    for number, report in reports.items():
        assert recorded[number] == progress_record(report)
    assert [source.records for source in recorded[min(recorded)].sources] == [2]
    record = read_job_record(files)
    assert (record.job, record.sink, record.mode) == ("counts", "noop:", "update")
    assert record.source == f"files:{tmp_path}/rows?format=json"
    with pytest.raises(CheckpointBusy, match="counts is running") as refused:
        refuse_if_held(files, "cannot rewind")
    assert "call stop() on the query" in str(refused.value.remedy)
    query.stop()
    wait_until(lambda: live_lease(files) is None)


def as_dict(progress: Any) -> dict[str, Any]:
    return json.loads(progress.json) if hasattr(progress, "json") else progress


def test_attach_and_detach(headwater_spark: SparkSession, start: Start, tmp_path: Path) -> None:
    """A query that runs already is recorded too, a second call changes nothing, and detach ends it."""
    files = LocalTree(tmp_path / "checkpoint")
    query = start(None)
    assert not files.exists("_headwater")
    handle = headwater.attach(headwater_spark)
    assert headwater.attach(headwater_spark) is handle
    assert live_lease(files)
    put(tmp_path, 1)
    query.processAllAvailable()
    wait_until(lambda: read_progress(files))
    assert read_job_record(files).job is None
    handle.detach()
    handle.detach()
    assert live_lease(files) is None
    seen = read_progress(files)
    put(tmp_path, 2)
    query.processAllAvailable()
    assert query.isActive
    assert read_progress(files) == seen
    again = headwater.attach(headwater_spark)
    assert again.is_active
    assert live_lease(files)
    again.detach()


def test_a_restart_keeps_the_lease(attached: Attachment, start: Start, tmp_path: Path) -> None:
    """A query that is started again at once holds its lease, whenever Spark reports the end of the previous run."""
    files = LocalTree(tmp_path / "checkpoint")
    for _ in range(3):
        start().stop()
    query = start()
    time.sleep(1)
    assert live_lease(files)
    query.stop()
    wait_until(lambda: live_lease(files) is None)


def test_temporary_checkpoints_are_left_alone(attached: Attachment, headwater_spark: SparkSession) -> None:
    """A query without a checkpoint of its own is not recorded."""
    query = headwater_spark.readStream.format("rate").load().writeStream.format("console").start()
    root = Path(query._jsq.streamingQuery().resolvedCheckpointRoot().removeprefix("file:"))
    assert root.exists()
    assert not (root / "_headwater").exists()
    query.stop()


def test_a_record_that_cannot_be_written_does_no_harm(attached: Attachment, start: Start, tmp_path: Path) -> None:
    """A query runs although neither its lease nor its batches can be recorded."""
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "_headwater").write_text("a file where a folder is expected")
    assert start().lastProgress["batchId"] >= 0
    blocked = tmp_path / "other"
    (blocked / PROGRESS_FILE).mkdir(parents=True)
    query = start("other", checkpoint=blocked)
    put(tmp_path, 1)
    query.processAllAvailable()
    assert query.isActive
    assert live_lease(LocalTree(blocked))
    query.stop()


def test_another_process_holds_the_lease(attached: Attachment, start: Start, tmp_path: Path) -> None:
    """A query runs unrecorded while another process uses its checkpoint, and is recorded once it is free."""
    files = LocalTree(tmp_path / "checkpoint")
    arguments = [sys.executable, "-c", HOLDER, str(tmp_path / "checkpoint" / LOCK)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        other.stdout.readline()
        query = start()
        assert not files.exists("_headwater/lease.json")
        assert read_progress(files) == {}
        other.stdin.close()
        other.wait()
        wait_until(lambda: files.exists("_headwater/lease.json"))
    put(tmp_path, 1)
    query.processAllAvailable()
    wait_until(lambda: read_progress(files))


def test_a_headwater_job_keeps_its_own_record(
    attached: Attachment, headwater_spark: SparkSession, start: Start, tmp_path: Path
) -> None:
    """In an attached session, a job is recorded by its run only, and another program's query does not erase its name."""
    checkpoint = tmp_path / "job"
    job = Job("copies", lambda rows: rows, reads=Files(str(tmp_path / "rows"), schema="at TIMESTAMP"),
              writes=Files(str(tmp_path / "out")), mode="append", trigger="available-now")  # fmt: skip
    drain_source(headwater_spark, job, checkpoint)
    files = LocalTree(checkpoint)
    record = read_job_record(files)
    assert record.job == "copies"
    assert record.reference is not None
    assert len(files.read(PROGRESS_FILE).splitlines()) == 1
    time.sleep(1)
    assert read_job_record(files) == record


def test_metrics_of_all_queries(headwater_spark: SparkSession, start: Start, tmp_path: Path) -> None:
    """Metrics are served for each query, under its name or the name of its checkpoint."""
    with pytest.raises(UsageProblem, match="not a valid port") as refused:
        headwater.attach(headwater_spark, metrics="web")
    assert refused.value.remedy == "metrics=9400, or metrics='0.0.0.0:9400'"
    handle = headwater.attach(headwater_spark, metrics=0)
    url = handle.metrics_url
    assert url is not None
    start()
    start(None, checkpoint=tmp_path / "nameless")

    def samples() -> set[str]:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return set(answer.read().decode().splitlines())

    wanted = {'headwater_input_rows_total{job="counts"} 2.0', 'headwater_input_rows_total{job="nameless"} 2.0'}
    wait_until(lambda: wanted <= samples())
    handle.detach()
    with pytest.raises(OSError, match="refused"):
        samples()


def test_a_port_in_use_does_not_stop_the_program(headwater_spark: SparkSession) -> None:
    """A port that is taken is a warning: the program continues, and its queries are recorded."""
    first = headwater.attach(headwater_spark, metrics=0)
    port = str(first.metrics_url).rpartition(":")[2].partition("/")[0]
    other = headwater_spark.newSession()
    with pytest.warns(RuntimeWarning, match=r"cannot serve metrics.*\(pass another port, such as metrics=9401\)"):
        second = headwater.attach(other, metrics=port)
    assert second.is_active
    assert second.metrics_url is None
    second.detach()
    first.detach()


def test_not_a_session() -> None:
    """A value that is not a session is refused, and a Spark Connect session only draws a warning."""
    with pytest.raises(ValueError, match="takes a SparkSession, not str"):
        headwater.attach("spark")  # type: ignore[arg-type]

    class Connected:
        streams = None

    with pytest.warns(RuntimeWarning, match="Spark Connect"):
        assert not headwater.attach(Connected()).is_active  # type: ignore[arg-type]


def test_an_attached_query_stops_on_request(
    attached: Attachment, headwater_spark: SparkSession, start: Start, tmp_path: Path
) -> None:
    """Another process can stop an attached query, and that request does not stop its next run, which is kept."""
    checkpoint = headwater.Checkpoint(tmp_path / "checkpoint") if start() else None
    assert checkpoint is not None
    before = live_lease(checkpoint.files)
    assert checkpoint.stop(wait=30)
    assert live_lease(checkpoint.files) is None
    query = start()
    headwater.attach(headwater_spark, keep_every="1h", keep_for="7d")
    (tmp_path / "checkpoint" / REQUEST).write_bytes(StopRequest.to_holder_of(before, now=True).to_bytes())
    time.sleep(1.5)
    assert query.isActive
    assert checkpoint.stop(wait=30, now=True)
    assert not query.isActive
    assert query.exception() is None
    assert [point.automatic for point in checkpoint.kept()] == [True]


def test_a_query_that_its_program_restarts_at_once(attached: Attachment, start: Start, tmp_path: Path) -> None:
    """Each run has a lease of its own: a request to stop the first one is fulfilled, and the second one continues."""
    first = start()
    files = LocalTree(tmp_path / "checkpoint")
    request, lease = request_stop(files)
    wait_until(lambda: not first.isActive)
    second = start()
    assert wait_until_stopped(files, request, lease, timeout=30)
    assert not files.exists(REQUEST)
    time.sleep(1.5)
    assert second.isActive


def test_a_query_that_begins_in_several_threads_at_once(
    headwater_spark: SparkSession, start: Start, tmp_path: Path
) -> None:
    """``attach`` begins running queries while Spark announces them: each is recorded once, and its lease is released."""
    query_id = start()._jsq.id()
    for _ in range(10):
        listener = _new_listener(headwater_spark, own_jar())
        together = threading.Barrier(4)

        def begin(listener: Any = listener, together: threading.Barrier = together) -> None:
            together.wait()
            listener.begin(query_id)

        threads = [threading.Thread(target=begin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        listener.close()
        assert live_lease(LocalTree(tmp_path / "checkpoint")) is None


def test_a_checkpoint_that_cannot_be_opened_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Restore points of a checkpoint whose store has no client draw one warning, not one each second."""
    asked = []

    class Recorder:
        def checkpoints(self) -> list[str]:
            asked.append(1)
            return ["nosuchstore://bucket/checkpoint"]

    monkeypatch.setattr(attach, "REPORT_SECONDS", 0.01)
    keeping = attach._AttachedKeeping(Recorder(), KeepPolicy(every_ms=1))  # type: ignore[arg-type]
    wait_until(lambda: len(asked) > 3)
    keeping.stop()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("cannot make restore points of nosuchstore://bucket/checkpoint: ")


def test_a_listener_that_cannot_be_set_up_is_removed(
    headwater_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If attaching fails halfway, it is a warning, and the session has no listener that nobody can remove."""

    def fail(_: object) -> None:
        raise Py4JError("the queries cannot be listed")

    before = len(headwater_spark.streams._jsqm.listListeners())
    monkeypatch.setattr(StreamingQueryManager, "active", property(fail))
    with pytest.warns(RuntimeWarning, match="cannot attach: the queries cannot be listed"):
        assert not headwater.attach(headwater_spark).is_active
    assert len(headwater_spark.streams._jsqm.listListeners()) == before
