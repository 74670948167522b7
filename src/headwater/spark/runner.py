"""Run a job on a checkpoint until it is done or told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.files import Files, LocalFiles
from headwater.checkpoint.job_record import JobRecord, read_job_record
from headwater.checkpoint.layout import JOB_FILE
from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.jobs.endpoints import Files as FilesEndpoint
from headwater.jobs.endpoints import Postgres, Socket
from headwater.jobs.job import Job
from headwater.jobs.rules import check_restart
from headwater.jobs.uris import uri_of
from headwater.spark import postgres, preflight
from headwater.spark.failures import explained, failure, root_cause
from headwater.spark.hadoop_files import HadoopFiles
from headwater.spark.lease import running_on
from headwater.spark.prepared import prepare_job
from headwater.spark.progress import BatchProgress, ProgressListener
from headwater.timemachine.executor import refuse_if_pending

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Run:
    """What to run and where. ``reference`` is how the user named the job."""

    job: Job
    reference: str
    checkpoint: str


def run_job(
    spark: SparkSession, run: Run, *, stop: threading.Event, on_batch: Callable[[BatchProgress], None] = lambda _: None
) -> None:
    """Runs until the trigger has drained the source, or until ``stop`` is set: then the batch in hand is ended first."""
    job = run.job
    preflight.check_source(job.reads)
    preflight.check_sink(job.writes)
    prepared = prepare_job(spark, job)
    if isinstance(job.writes, Postgres):
        postgres.prepare(job.writes, prepared.schema)
    files = _files_at(spark, run.checkpoint)
    refuse_if_pending(files)
    with running_on(spark, files, job.name):
        check_ownership(files, run)
        check_restart(job, has_history=bool(files.entries("offsets")), checkpoint=files.location)
        files.write(JOB_FILE, _record(run).to_bytes())
        listener = ProgressListener(on_batch)
        spark.streams.addListener(listener)
        try:
            with explained(f"Spark does not start {job.name}"):
                query = prepared.start(run.checkpoint)
            _wait(query, stop)
            _raise_if_failed(query, job)
        finally:
            _drain_listeners(spark)
            spark.streams.removeListener(listener)


def ask_to_end(query: StreamingQuery) -> None:
    """Let the query end by itself once the batch in hand is committed; ``StreamingQuery.stop`` tears it down halfway."""
    terminated = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"
    state = query._jsq.getClass().getClassLoader().loadClass(terminated).getField("MODULE$").get(None)
    query._jsq.streamingQuery().state().set(state)


def stop_after_batch(query: StreamingQuery) -> None:
    """End the batch in hand, then the query."""
    ask_to_end(query)
    # Between triggers nothing is in hand, and the thread may sleep for the rest of a long interval.
    while not query.awaitTermination(POLL_SECONDS):
        if not query.status["isTriggerActive"]:
            query.stop()


def check_ownership(files: Files, run: Run) -> None:
    """A checkpoint belongs to one job, reads from one kind of source and, for files, fills one folder."""
    known, wanted = read_job_record(files), _record(run)
    if known.job is None:
        return
    if known.job != wanted.job:
        raise JobRefused(
            "other-job",
            f"this checkpoint belongs to {known.job}, not to {wanted.job}",
            evidence={"checkpoint": files.location},
            remedy=f"headwater run {run.reference} --checkpoint .headwater/checkpoints/{wanted.job}",
        )
    if not files.entries("offsets"):
        return
    if known.source_kind != wanted.source_kind:
        raise JobRefused(
            "other-source",
            f"this checkpoint counts {known.source_kind} offsets, which a {wanted.source_kind} source cannot go on from",
            evidence={"so far": known.source, "now": wanted.source},
            remedy="use a new --checkpoint, or the source of before",
        )
    if known.sink_folder and wanted.sink_folder and known.sink_folder != wanted.sink_folder:
        raise JobRefused(
            "other-sink",
            "a file sink cannot move in the middle of a checkpoint: Spark finds its log of batches incomplete",
            evidence={"so far": known.sink_folder, "now": wanted.sink_folder},
            remedy="use a new --checkpoint, or the folder of before",
        )


def _record(run: Run) -> JobRecord:
    job = run.job
    return JobRecord(job.name, _full(job.reads), _full(job.writes), job.mode, run.reference, dict(job.settings))


def _full(endpoint: Any) -> str:
    """Folders are recorded with their whole path: a reader may stand elsewhere."""
    uri = uri_of(endpoint)
    if isinstance(endpoint, FilesEndpoint) and "://" not in endpoint.path:
        return uri.replace(endpoint.path, str(Path(endpoint.path).absolute()), 1)
    return uri


def _files_at(spark: SparkSession, checkpoint: str) -> Files:
    if "://" not in checkpoint:
        return LocalFiles(Path(checkpoint))
    return HadoopFiles(spark, checkpoint)


def _wait(query: StreamingQuery, stop: threading.Event) -> None:
    try:
        while not query.awaitTermination(POLL_SECONDS):
            if stop.is_set():
                stop_after_batch(query)
                return
    except StreamingQueryException:
        return


def _raise_if_failed(query: StreamingQuery, job: Job) -> None:
    error = query.exception()
    if error is None:
        return
    if isinstance(job.reads, Socket) and "refused" in root_cause(error).lower():
        raise ServiceUnreachable(
            "socket-unreachable",
            f"nobody listens at {job.reads.host}:{job.reads.port}",
            remedy=f"nc -lk {job.reads.port}   (in another terminal), then type lines",
        )
    raise failure(job.name, error) from error


def _drain_listeners(spark: SparkSession) -> None:
    try:
        spark._jsc.sc().listenerBus().waitUntilEmpty(5000)
    except Py4JError:
        return
