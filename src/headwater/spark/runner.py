"""Start a job on a checkpoint. What the run needs, it holds until its query has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import stuck_batch
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.progress_files import ProgressWriter
from headwater.checkpoint.record import JobRecord, ProgressRecord, read_job_record
from headwater.checkpoint.runs import add_run
from headwater.checkpoint.stop_request import StopRequests
from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Delta, Kafka, Postgres, Sink, Table
from headwater.lakehouse.delta_log import DeltaLog
from headwater.spark import postgres
from headwater.spark.change_guard import accept_or_refuse
from headwater.spark.code_by_size import CodeBySize
from headwater.spark.delta import location
from headwater.spark.deployment import run_of
from headwater.spark.dropped import collecting_dead_letters
from headwater.spark.dropped.lateness import source_order
from headwater.spark.dropped.store import query_id_of
from headwater.spark.failures import explained
from headwater.spark.followers import Follower, recording_failure
from headwater.spark.internals.hadoop_tree import HadoopTree
from headwater.spark.job_session import isolated_session, settings_of_job
from headwater.spark.kafka_followers import guarding_topics
from headwater.spark.missing import missing_internals_note
from headwater.spark.ownership import Run, check_ownership, holding_lease, job_record
from headwater.spark.prepared import prepare_job
from headwater.spark.progress import listening
from headwater.spark.real_time import real_time_settings
from headwater.spark.running import BatchCounts, RunningJob
from headwater.spark.session import matching_checkpoint_format, temporary_settings
from headwater.spark.source_names import check_source_order, naming_settings
from headwater.spark.tables import table_folder
from headwater.timemachine.journal import newest_number
from headwater.timemachine.keeping import Keeper, KeepPolicy

POLL_SECONDS = 0.2
INITIALIZATION_SECONDS = 30.0
# Settings of a session are changed while one of its jobs starts, so jobs start one at a time.
_starting = threading.Lock()


def start_job(
    spark: SparkSession,
    run: Run,
    *,
    on_batch: Callable[[ProgressRecord], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
    keep: KeepPolicy | None = None,
    followers: Sequence[Follower] = (),
) -> RunningJob:
    """Start a job that has passed ``check_run``, and whose services have passed ``preflight.check_services``.

    ``on_batch`` is called after each batch, from another thread; ``warn`` with warnings that cannot wait for the end.
    ``keep`` makes restore points while the job runs. ``followers`` accompany the job until its query has ended.
    """
    job = run.job
    if missing := missing_internals_note(spark):
        warn(missing)
    with _starting, settings_of_job(spark, job, warn) as changed, ExitStack() as resources:
        files = files_at(spark, run.checkpoint)
        naming = naming_settings(spark, job, files)
        with temporary_settings(spark, naming):
            prepared = prepare_job(spark, job)
        for warning in prepared.warnings:
            warn(warning)
        resources.enter_context(prepared.tables)
        requests = StopRequests(files, resources.enter_context(holding_lease(spark, files, job.name)))
        # Again, now that the lease is held: the checkpoint may have changed since check_run.
        check_ownership(files, run)
        _refuse_stuck_batch(spark, files, run)
        real_time = real_time_settings(prepared, files, run.checkpoint)
        prepared.tables.load()
        if isinstance(job.writes, Postgres):
            postgres.prepare(job.writes, prepared.schema)
        generation = newest_number(files)
        recorded, order = read_job_record(files), source_order(job, prepared.inputs) if len(job.sources) > 1 else []
        check_source_order(files, recorded, order, prepared, naming)
        accept_or_refuse(run, prepared, files, warn)
        record = replace(_record_of(run, recorded), source_order=tuple(order))
        deployed = run_of(job, files, spark.version)
        files.write(JOB_FILE, record.to_bytes())
        # Dropped records are found while the job runs, when the session no longer has the job's settings.
        finder = isolated_session(spark) if changed and job.dead_letters else spark
        collect = resources.enter_context(collecting_dead_letters(finder, job, files, warn, prepared.tables.kept))
        counts, code = BatchCounts(), CodeBySize(spark, job)
        keeping = [] if keep is None else [resources.enter_context(_keeper(spark, files, keep, warn))]
        following = [resources.enter_context(follow(files, warn)) for follow in (*_own_followers(run), *followers)]
        following.append(resources.enter_context(recording_failure(files)))
        progress = ProgressWriter(files)
        resources.callback(progress.close)
        on_each = _each_of(
            progress.add,
            counts.add,
            code.after_batch,
            collect,
            *(lambda _, one=one: one.after_batch() for one in keeping),
            *following,
            on_batch,
            warn=warn,
        )
        reports = resources.enter_context(listening(spark, on_each, record.sources))
        with (
            explained(f"Spark cannot start {job.name}"),
            matching_checkpoint_format(spark, files),
            temporary_settings(spark, {**naming, **real_time}),
        ):
            query = prepared.start(run.checkpoint, generation=generation)
        try:
            add_run(files, deployed)
            code.follow(query)
            reports.follow(query)
            if isinstance(job.writes, Table):
                files.write(JOB_FILE, replace(record, table_folder=table_folder(spark, job.writes)).to_bytes())
            if changed:
                _wait_until_initialized(query)
        except BaseException:
            query.stop()
            raise
        return RunningJob(spark, run, query, counts, reports, requests, resources.pop_all())


def run_job(
    spark: SparkSession,
    run: Run,
    *,
    stop: threading.Event,
    on_batch: Callable[[ProgressRecord], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> None:
    """Start a job and wait until its source is drained, or until ``stop`` is set and the current batch is committed."""
    running = start_job(spark, run, on_batch=on_batch, warn=warn)
    while not running.wait(POLL_SECONDS):
        if stop.is_set():
            running.stop(wait=False)


def _record_of(run: Run, recorded: JobRecord) -> JobRecord:
    """Return the record of a run. It keeps what only an earlier run knew: a table's folder, where the job is defined."""
    record = job_record(run)
    return replace(record, table_folder=recorded.table_folder, reference=record.reference or recorded.reference)


def files_at(spark: SparkSession, checkpoint: str) -> FileTree:
    """Return the tree of a folder, or of a URL through Spark's own client."""
    if "://" not in checkpoint:
        return LocalTree(Path(checkpoint))
    return HadoopTree(spark, checkpoint)


def _refuse_stuck_batch(spark: SparkSession, files: FileTree, run: Run) -> None:
    folder = job_record(run).sink_folder or read_job_record(files).table_folder
    logs = CheckpointLogs(files)
    batch = stuck_batch(logs, files_at(spark, folder.removeprefix("file:")) if folder else None)
    if batch is None:
        batch = _stuck_in_table(logs, run.job.writes)
    if batch is None:
        return
    raise JobRefused(
        "batch-stuck",
        f"Spark cannot finish batch {batch} of this checkpoint",
        evidence={
            "checkpoint": run.checkpoint,
            "why": "the query was killed between the output and the commit of this batch; the sink now skips it, and "
            "checkpoint format 2 cannot continue without its state",
        },
        remedy=f"headwater rewind {run.checkpoint} --redo {batch}   (sets its output aside and writes it again)",
    )


def _stuck_in_table(logs: CheckpointLogs, sink: Sink) -> int | None:
    """Return the batch that a Delta table has and the checkpoint has not, if Spark cannot recover from that."""
    if not isinstance(sink, Delta) or sink.merge_names or not logs.is_format_two or "://" in location(sink):
        return None
    table = DeltaLog(LocalTree(Path(location(sink))))
    if not table.exists:
        return None
    newest = table.snapshot(table.head).transactions.get(query_id_of(logs.files), -1)
    done, planned = logs.commits.latest or 0, logs.offsets.ids[-1] if logs.offsets.ids else -1
    return newest if done < newest <= planned else None


def _own_followers(run: Run) -> list[Follower]:
    reads_kafka = any(isinstance(source, Kafka) for source in run.job.sources.values())
    return [guarding_topics(run.job)] if reads_kafka else []


def _keeper(spark: SparkSession, files: FileTree, policy: KeepPolicy, warn: Callable[[str], None]) -> Keeper:
    return Keeper(files, policy, open_sink=lambda folder: files_at(spark, folder), warn=warn)


def _each_of(
    *listeners: Callable[[ProgressRecord], None], warn: Callable[[str], None]
) -> Callable[[ProgressRecord], None]:
    """Pass each batch to all listeners. If one fails, ``warn`` is called once, and the others get the batch as well."""
    failed: set[int] = set()

    def on_batch(batch: ProgressRecord) -> None:
        for place, listener in enumerate(listeners):
            try:
                listener(batch)
            except Exception as error:
                if place not in failed:
                    failed.add(place)
                    with suppress(Exception):  # the listener may be the one that prints
                        reason = getattr(error, "problem", f"{type(error).__name__}: {error}")
                        warn(f"warning: the report of batch {batch.batch_id} could not be processed: {reason}")

    return on_batch


def _wait_until_initialized(query: StreamingQuery) -> None:
    """Wait until a query has created its sources: they read settings from the session that they were defined on."""
    deadline = time.monotonic() + INITIALIZATION_SECONDS
    while query.isActive and query.status["message"].startswith("Initializing") and time.monotonic() < deadline:
        time.sleep(0.02)
