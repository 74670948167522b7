"""Run a job on a checkpoint until it is done or told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import stuck_batch
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.record import ProgressWriter, read_job_record
from headwater.core.errors import JobFailed, JobRefused, ServiceUnreachable
from headwater.jobs.endpoints import Postgres, Socket, Table
from headwater.jobs.job import Job
from headwater.spark import postgres
from headwater.spark.dropped import following
from headwater.spark.failures import explained, failure, root_cause
from headwater.spark.internals.hadoop_tree import HadoopTree
from headwater.spark.internals.query_end import stop_after_batch
from headwater.spark.ownership import Run, check_free, check_ownership, record_of, running_on
from headwater.spark.prepared import prepare_job
from headwater.spark.progress import BatchProgress, listening, record_of_batch
from headwater.spark.session import in_its_format
from headwater.spark.tables import table_folder
from headwater.timemachine.journal import read_entries

POLL_SECONDS = 0.2


def check_checkpoint(run: Run) -> None:
    """What can be refused about a checkpoint on this machine without Spark. ``run_job`` asks again, under its lease."""
    if "://" not in run.checkpoint:
        files = LocalTree(Path(run.checkpoint))
        check_free(files, run.job.name)
        check_ownership(files, run)


def run_job(
    spark: SparkSession,
    run: Run,
    *,
    stop: threading.Event,
    on_batch: Callable[[BatchProgress], None] = lambda _: None,
    on_wait: Callable[[str], None] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Runs until the trigger has drained the source, or until ``stop`` is set: then the batch in hand is ended first.

    ``on_batch`` is called from another thread after every batch; ``on_wait``, several times a second, with what Spark
    says that it is doing; ``tell``, with warnings that cannot wait for the end. Services are not asked here: see
    ``preflight.check_services``.
    """
    job = run.job
    prepared = prepare_job(spark, job)
    files = _files_at(spark, run.checkpoint)
    with running_on(spark, files, job.name):
        check_ownership(files, run)
        _refuse_stuck_batch(spark, files, run)
        if isinstance(job.writes, Postgres):
            postgres.prepare(job.writes, prepared.schema)
        generation = max((entry.number for entry in read_entries(files)), default=0)
        record = replace(record_of(run), table_folder=read_job_record(files).table_folder)
        files.write(JOB_FILE, record.to_bytes())
        with (
            following(spark, job, files, tell) as keep_dropped,
            listening(spark, _recording(files, on_batch, keep_dropped)),
        ):
            with explained(f"Spark does not start {job.name}"), in_its_format(spark, files):
                query = prepared.start(run.checkpoint, generation=generation)
            if isinstance(job.writes, Table):
                files.write(JOB_FILE, replace(record, table_folder=table_folder(spark, job.writes)).to_bytes())
            with _explained_death(job):
                _wait(query, stop, on_wait)
                _raise_if_failed(query, job)


def _files_at(spark: SparkSession, checkpoint: str) -> FileTree:
    if "://" not in checkpoint:
        return LocalTree(Path(checkpoint))
    return HadoopTree(spark, checkpoint)


def _refuse_stuck_batch(spark: SparkSession, files: FileTree, run: Run) -> None:
    folder = record_of(run).sink_folder or read_job_record(files).table_folder
    batch = stuck_batch(CheckpointLogs(files), _files_at(spark, folder.removeprefix("file:")) if folder else None)
    if batch is None:
        return
    raise JobRefused(
        "batch-stuck",
        f"Spark cannot finish batch {batch} of this checkpoint",
        evidence={
            "checkpoint": run.checkpoint,
            "why": "it was killed after its output and before its commit: the file sink skips it now, and "
            "checkpoint format 2 does not go on without its state",
        },
        remedy=f"headwater rewind {run.checkpoint} --redo {batch}   (its output is set aside and written anew)",
    )


def _recording(files: FileTree, *listeners: Callable[[BatchProgress], None]) -> Callable[[BatchProgress], None]:
    """Each batch is written down beside the checkpoint's logs before anybody is told of it."""
    writer = ProgressWriter(files)

    def heard(batch: BatchProgress) -> None:
        writer.add(record_of_batch(batch))
        for tell in listeners:
            tell(batch)

    return heard


@contextmanager
def _explained_death(job: Job) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, ConnectionError) as error:
        raise JobFailed(
            "spark-died",
            f"Spark's process died under {job.name}",
            evidence={"likely": "killed, or out of memory: see its log"},
            remedy="run it again: it goes on where it was",
        ) from error


def _wait(query: StreamingQuery, stop: threading.Event, on_wait: Callable[[str], None] | None) -> None:
    try:
        while not query.awaitTermination(POLL_SECONDS):
            if stop.is_set():
                stop_after_batch(query)
                return
            if on_wait:
                on_wait(query.status["message"])
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
