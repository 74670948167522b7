"""Run a job on a checkpoint until its source is drained or the run is stopped."""

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
from headwater.checkpoint.record import ProgressRecord, ProgressWriter, read_job_record
from headwater.core.errors import HeadwaterError, JobFailed, JobRefused, ServiceUnreachable
from headwater.jobs.endpoints import Postgres, Socket, Table
from headwater.jobs.job import Job
from headwater.spark import postgres
from headwater.spark.dropped import collecting_dead_letters
from headwater.spark.dropped.lateness import source_order
from headwater.spark.failures import explained, failure, root_cause
from headwater.spark.internals.hadoop_tree import HadoopTree
from headwater.spark.internals.query_end import stop_after_batch
from headwater.spark.ownership import Run, check_ownership, holding_lease, job_record
from headwater.spark.prepared import prepare_job
from headwater.spark.progress import listening
from headwater.spark.session import matching_checkpoint_format, temporary_settings
from headwater.spark.source_names import check_source_order, naming_settings
from headwater.spark.tables import table_folder
from headwater.timemachine.journal import read_entries

POLL_SECONDS = 0.2


def run_job(
    spark: SparkSession,
    run: Run,
    *,
    stop: threading.Event,
    on_batch: Callable[[ProgressRecord], None] = lambda _: None,
    on_status: Callable[[str], None] | None = None,
    on_poll: Callable[[StreamingQuery], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> None:
    """Run until the trigger has drained the source, or until ``stop`` is set and the current batch is committed.

    ``on_batch`` is called after each batch, from another thread; ``on_status`` several times a second, with Spark's
    description of what it is doing; ``on_poll`` as often, from this thread, with the running query, which ends after
    the current batch if ``on_poll`` raises; ``warn`` with warnings that cannot wait for the end of the run. The run has passed
    ``check_run``, and its services have passed ``preflight.check_services``.
    """
    job = run.job
    files = _files_at(spark, run.checkpoint)
    naming = naming_settings(spark, job, files)
    with temporary_settings(spark, naming):
        prepared = prepare_job(spark, job)
    for warning in prepared.warnings:
        warn(warning)
    with holding_lease(spark, files, job.name):
        # Again, now that the lease is held: the checkpoint may have changed since check_run.
        check_ownership(files, run)
        _refuse_stuck_batch(spark, files, run)
        if isinstance(job.writes, Postgres):
            postgres.prepare(job.writes, prepared.schema)
        generation = max((entry.number for entry in read_entries(files)), default=0)
        recorded, order = read_job_record(files), source_order(job, prepared.inputs) if len(job.sources) > 1 else []
        check_source_order(files, recorded, order, prepared, naming)
        record = replace(job_record(run), table_folder=recorded.table_folder, source_order=tuple(order))
        files.write(JOB_FILE, record.to_bytes())
        with (
            collecting_dead_letters(spark, job, files, warn) as collect,
            listening(spark, _recording(files, on_batch, collect), record.sources),
        ):
            with (
                explained(f"Spark cannot start {job.name}"),
                matching_checkpoint_format(spark, files),
                temporary_settings(spark, naming),
            ):
                query = prepared.start(run.checkpoint, generation=generation)
            if isinstance(job.writes, Table):
                files.write(JOB_FILE, replace(record, table_folder=table_folder(spark, job.writes)).to_bytes())
            with _explained_death(job):
                _wait(query, stop, on_status, on_poll)
                _raise_if_failed(query, job)


def _files_at(spark: SparkSession, checkpoint: str) -> FileTree:
    if "://" not in checkpoint:
        return LocalTree(Path(checkpoint))
    return HadoopTree(spark, checkpoint)


def _refuse_stuck_batch(spark: SparkSession, files: FileTree, run: Run) -> None:
    folder = job_record(run).sink_folder or read_job_record(files).table_folder
    batch = stuck_batch(CheckpointLogs(files), _files_at(spark, folder.removeprefix("file:")) if folder else None)
    if batch is None:
        return
    raise JobRefused(
        "batch-stuck",
        f"Spark cannot finish batch {batch} of this checkpoint",
        evidence={
            "checkpoint": run.checkpoint,
            "why": "the query was killed between the output and the commit of this batch; the file sink now skips it, and "
            "checkpoint format 2 cannot continue without its state",
        },
        remedy=f"headwater rewind {run.checkpoint} --redo {batch}   (sets its output aside and writes it again)",
    )


def _recording(files: FileTree, *listeners: Callable[[ProgressRecord], None]) -> Callable[[ProgressRecord], None]:
    """Record each batch next to the checkpoint's logs, then pass it to the listeners."""
    writer = ProgressWriter(files)

    def on_batch(batch: ProgressRecord) -> None:
        writer.add(batch)
        for listener in listeners:
            listener(batch)

    return on_batch


@contextmanager
def _explained_death(job: Job) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, ConnectionError) as error:
        raise JobFailed(
            "spark-died",
            f"the Spark process died while it was running {job.name}",
            evidence={"likely": "it was killed, or ran out of memory; see its log"},
            remedy="run the job again; it resumes where it left off",
        ) from error


def _wait(
    query: StreamingQuery,
    stop: threading.Event,
    on_status: Callable[[str], None] | None,
    on_poll: Callable[[StreamingQuery], None],
) -> None:
    try:
        while not query.awaitTermination(POLL_SECONDS):
            if stop.is_set():
                stop_after_batch(query)
                return
            if on_status:
                on_status(query.status["message"])
            on_poll(query)
    except StreamingQueryException:
        return
    except HeadwaterError:
        stop_after_batch(query)
        raise


def _raise_if_failed(query: StreamingQuery, job: Job) -> None:
    error = query.exception()
    if error is None:
        return
    socket = next((source for source in job.sources.values() if isinstance(source, Socket)), None)
    if socket is not None and "refused" in root_cause(error).lower():
        raise ServiceUnreachable(
            "socket-unreachable",
            f"nothing is listening at {socket.host}:{socket.port}",
            remedy=f"nc -lk {socket.port}   (in another terminal; then type lines)",
        )
    raise failure(job.name, error) from error
