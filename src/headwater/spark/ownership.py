"""A checkpoint belongs to one job, goes on from one source and, for files, fills one folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import OFFSETS, PENDING_FILE
from headwater.checkpoint.lease import LOCK, RECORD, Lease, kept_alive, refuse_if_held
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord, read_job_record
from headwater.core.errors import CheckpointBusy, CheckpointUnreadable, JobRefused
from headwater.jobs.endpoints import Files, Sink, Source
from headwater.jobs.job import Job
from headwater.jobs.rules import check_restart
from headwater.jobs.uris import uri_of
from headwater.spark.internals.checkpoint_lock import locked_by_jvm


@dataclass(frozen=True)
class Run:
    """What to run and where. ``reference`` is how the user named the job."""

    job: Job
    reference: str
    checkpoint: str


def check_ownership(files: FileTree, run: Run) -> None:
    """Refuse to run a job on a checkpoint that it cannot go on from."""
    if files.exists(PENDING_FILE):
        raise CheckpointUnreadable(
            "interrupted-operation",
            "a change to this checkpoint was begun and not ended",
            evidence={"checkpoint": files.location},
            remedy=f"headwater fsck {files.location} --repair",
        )
    known, wanted = read_job_record(files), record_of(run)
    if known.job is not None and known.job != wanted.job:
        raise JobRefused(
            "other-job",
            f"this checkpoint belongs to {known.job}, not to {wanted.job}",
            evidence={"checkpoint": files.location},
            remedy=f"headwater run {run.reference} --checkpoint .headwater/checkpoints/{wanted.job}-2",
        )
    if not files.entries(OFFSETS):
        return
    check_restart(run.job, checkpoint=files.location)
    if known.source and wanted.source and _identity(known.source) != _identity(wanted.source):
        raise JobRefused(
            "other-source",
            "this checkpoint counts the offsets of another source",
            evidence={"so far": known.source, "now": wanted.source},
            remedy="use a new --checkpoint, or the source of before",
        )
    if known.sink_folder and wanted.sink_folder and known.sink_folder != wanted.sink_folder:
        raise JobRefused(
            "other-sink",
            "a file sink cannot move to another folder in the middle of a checkpoint",
            evidence={"so far": known.sink_folder, "now": wanted.sink_folder},
            remedy="use a new --checkpoint, or the folder of before",
        )


def record_of(run: Run) -> JobRecord:
    """What the checkpoint will remember of this run."""
    job = run.job
    return JobRecord(job.name, _full(job.reads), _full(job.writes), job.mode, run.reference, dict(job.settings))


def _identity(source: str) -> tuple[str, str]:
    """The kind of source, and for Kafka its topic. A folder may move: Spark knows its files by their paths."""
    kind, _, rest = source.partition("?")[0].partition(":")
    return kind, rest.rpartition("/")[2] if kind == "kafka" else ""


def _full(endpoint: Source | Sink) -> str:
    """Folders are recorded with their whole path: a reader may stand elsewhere."""
    uri = uri_of(endpoint)
    if isinstance(endpoint, Files) and "://" not in endpoint.path:
        return uri.replace(endpoint.path, str(Path(endpoint.path).absolute()), 1)
    return uri


@contextmanager
def running_on(spark: SparkSession, files: FileTree, job: str) -> Iterator[None]:
    """Hold the lease while the block runs."""
    check_free(files, job)
    lease = Lease.of_this_process(job)
    if not isinstance(files, LocalTree):
        with kept_alive(files, lease):
            yield
        return
    with locked_by_jvm(spark, files.path_of(LOCK)) as is_locked:
        if not is_locked:
            refuse_if_held(files, _cannot_run(job))
            raise CheckpointBusy(
                "checkpoint-busy", f"{_cannot_run(job)}: another process acquired the lease first", remedy="try again"
            )
        files.write(RECORD, lease.to_bytes())
        yield


def check_free(files: FileTree, job: str) -> None:
    """Refuse when somebody works on the checkpoint; the JVM of a predecessor that was just killed may still be at it."""
    refuse_if_held(files, _cannot_run(job))


def _cannot_run(job: str) -> str:
    return f"cannot run {job}"
