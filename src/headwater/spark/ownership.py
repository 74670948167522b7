"""Who may run on a checkpoint: one process at a time, and always the same job, source and file sink.

``check_run`` refuses a run before Spark starts, so the user has the answer within a second. While Spark starts, another
process may run on the checkpoint or change it. ``start_job`` therefore acquires the lease with ``holding_lease`` and then
calls ``check_ownership`` again. A checkpoint on an object store is checked only there: reading it takes Spark's Hadoop
client and its credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl

from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import CASCADE_FILE, OFFSETS, PENDING_FILE
from headwater.checkpoint.lease import (
    RECORD,
    Lease,
    lease_with_heartbeat,
    lock_to_hold,
    recorded_end,
    refuse_busy,
    refuse_if_held,
)
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import CHECKPOINTS, absolute_path, new_start, open_files
from headwater.checkpoint.moved import follow_promotion, refuse_if_moved
from headwater.checkpoint.record import JobRecord, read_job_record, uri_kind
from headwater.core.errors import CheckpointUnreadable, JobRefused
from headwater.jobs.endpoints import Delta, Files, Iceberg, Kafka, Sink, Source
from headwater.jobs.job import UNNAMED, Job
from headwater.jobs.rules import check_job, check_restart, has_socket, refuse_socket_checkpoint
from headwater.jobs.uris import uri_of
from headwater.spark.internals.checkpoint_lock import locked_by_jvm
from headwater.spark.table_formats import configured_catalog
from headwater.timemachine.seed import SCRATCH_SUFFIX, is_unfinished


@dataclass(frozen=True)
class Run:
    """A job and the checkpoint to run it on.

    ``reference`` is the name by which the user gave the job; None if a program started it and no name leads back to it.
    """

    job: Job
    reference: str | None
    checkpoint: str
    accept_change: bool = False
    """Whether the code may give the state of the checkpoint another meaning."""


def checkpoint_location(given: str | None, job: Job) -> str:
    """Return the absolute path or URL of the checkpoint: the given one, the job's own, or a new one for a socket."""
    if has_socket(job):
        if given:
            refuse_socket_checkpoint(job, given)
        return str(Path(new_start(job.name, datetime.now(UTC))).absolute())
    location = (given or f"{CHECKPOINTS}/{job.name}").removeprefix("file://").removeprefix("file:")
    if "://" not in location:
        return _followed(str(Path(_known(location)).absolute()))
    # Spark knows S3 as s3a.
    return re.sub("^s3://", "s3a://", location)


def _known(location: str) -> str:
    """Return the checkpoint that a name refers to in other commands, unless there is a folder of that name here."""
    named = f"{CHECKPOINTS}/{location}"
    is_name = "/" not in location and not location.startswith(".") and not Path(location).exists()
    return named if is_name and Path(named).exists() else location


def _followed(location: str) -> str:
    """Return where a job continues: at the fork that was promoted in its place, if there is one."""
    followed = follow_promotion(LocalTree(Path(location)), open_files).location
    return re.sub("^s3://", "s3a://", followed)


def check_run(run: Run) -> None:
    """Refuse a run for every reason that can be found without Spark, except unreachable services."""
    check_job(run.job)
    if "://" not in run.checkpoint:
        files = LocalTree(Path(run.checkpoint))
        refuse_if_held(files, _cannot_run(run.job.name))
        check_ownership(files, run)


def check_ownership(files: FileTree, run: Run) -> None:
    """Refuse to run a job on a checkpoint that it cannot resume from."""
    refuse_if_moved(files)
    if files.exists(PENDING_FILE) or files.exists(CASCADE_FILE):
        raise CheckpointUnreadable(
            "interrupted-operation",
            "a change to this checkpoint was interrupted",
            evidence={"checkpoint": files.location},
            remedy=f"headwater fsck {files.location} --repair",
        )
    if is_unfinished(files):
        raise CheckpointUnreadable(
            "incomplete-seed",
            "a seed of this checkpoint is running, or was interrupted",
            evidence={"checkpoint": files.location},
            remedy="if it was interrupted, run the same headwater seed again, which resumes it, "
            f"or remove {files.location} and {files.location}{SCRATCH_SUFFIX}",
        )
    recorded, current = read_job_record(files), job_record(run)
    # A query of another program may have become this job, under another name.
    if recorded.job is not None and not recorded.attached and recorded.job != current.job:
        raise JobRefused(
            "other-job",
            f"this checkpoint belongs to {recorded.job}, not to {current.job}",
            evidence={"checkpoint": files.location},
            remedy=f"headwater run {run.reference or 'JOB'} --checkpoint {CHECKPOINTS}/{current.job}-2",
        )
    if not files.entries(OFFSETS):
        return
    check_restart(run.job, checkpoint=files.location)
    _check_sources(recorded, current)
    _check_table(recorded, current)
    if recorded.sink_folder and current.sink_folder and recorded.sink_folder != current.sink_folder:
        raise JobRefused(
            "other-sink",
            "a file sink cannot move to another folder within a checkpoint",
            evidence={"recorded": recorded.sink_folder, "given": current.sink_folder},
            remedy="use the recorded folder, or a new --checkpoint",
        )


def _check_table(recorded: JobRecord, current: JobRecord) -> None:
    """Refuse another table than the one with the rows of earlier batches. Tables know batches by the query's id."""
    before, now = ((record.sink or "").partition("?")[0] for record in (recorded, current))
    if uri_kind(before) == uri_kind(now) and uri_kind(now) in ("delta", "iceberg") and before != now:
        raise JobRefused(
            "other-sink",
            "a query cannot continue in another table within a checkpoint",
            evidence={"recorded": before, "given": now},
            remedy="use the recorded table, or a new --checkpoint",
        )


def _check_sources(recorded: JobRecord, current: JobRecord) -> None:
    """Refuse a source that the recorded offsets do not belong to. Static tables may change."""
    before = recorded.sources or ({"": recorded.source} if recorded.source else {})
    now = current.sources or ({"": current.source} if current.source else {})
    if recorded.attached and (recorded.source is None or len(now) == 1):
        _check_attached_sources(list(before.values()), list(now.values()))
        return
    # A source may be given a name later: its offsets stay valid.
    if len(before) == len(now) == 1:
        before, now = {"": next(iter(before.values()))}, {"": next(iter(now.values()))}
    if before.keys() != now.keys() and before and now:
        raise JobRefused(
            "other-source",
            "this checkpoint has the offsets of other sources",
            evidence={"recorded": ", ".join(before), "given": ", ".join(now)},
            remedy="use the recorded sources, or: headwater migrate CKPT --job JOB",
        )
    for name in before.keys() & now.keys():
        if _identity(before[name]) != _identity(now[name]):
            raise JobRefused(
                "other-source",
                f"this checkpoint has the offsets of a different source{f' {name}' if name else ''}",
                evidence={"recorded": before[name], "given": now[name]},
                remedy="use the recorded source, or a new --checkpoint",
            )


def _check_attached_sources(before: list[str], now: list[str]) -> None:
    """Refuse sources of other kinds or with other topics. The recorded ones have no names, and some may be missing."""
    known, given = (sorted(filter(None, map(_attached_identity, uris))) for uris in (before, now))
    if len(known) == len(given) and known != given:
        raise JobRefused(
            "other-source",
            "this checkpoint has the offsets of other sources",
            evidence={"recorded": ", ".join(before), "given": ", ".join(now)},
            remedy="use the recorded sources, or a new --checkpoint",
        )


def _attached_identity(source: str) -> tuple[str, ...] | None:
    """Return the kind of a source and, for Kafka, its topics; None for a table, which jobs also read by its path."""
    kind, path = _identity(source)
    if kind == "table":
        return None
    options = {name.lower(): value for name, value in parse_qsl(source.partition("?")[2])}
    topics = options.get("subscribe", path) if kind == "kafka" else ""
    return kind, *sorted(topic.strip() for topic in topics.split(","))


def job_record(run: Run) -> JobRecord:
    """Return what the checkpoint records about a run."""
    job = run.job
    return JobRecord(
        job.name,
        _absolute(job.sources[UNNAMED], job.conf) if UNNAMED in job.sources else None,
        _absolute(job.writes, job.conf),
        job.mode,
        run.reference,
        dict(job.settings),
        sources={name: _absolute(source, job.conf) for name, source in job.sources.items() if name != UNNAMED},
        statics={name: _absolute(static.table, job.conf) for name, static in job.statics.items()},
        has_state_view=job.state_view is not None,
    )


def _identity(source: str) -> tuple[str, str]:
    """Return the kind of a source and, for Kafka, its topic. A folder may move: Spark knows its files by their paths."""
    kind, _, rest = source.partition("?")[0].partition(":")
    return kind, rest.rpartition("/")[2] if kind == "kafka" else ""


def _absolute(endpoint: Source | Sink, conf: Mapping[str, str]) -> str:
    """Return an endpoint's URI with an absolute path: a later command may run in another directory.

    Settings of an Iceberg catalog that are in Spark's configuration become part of the URI.
    """
    if isinstance(endpoint, Kafka) and endpoint.schema_file:
        endpoint = replace(endpoint, schema=str(Path(endpoint.schema_file).absolute()))
    if isinstance(endpoint, Iceberg):
        endpoint = replace(endpoint, catalog=endpoint.catalog or configured_catalog(endpoint, conf))
        endpoint = replace(endpoint, catalog=endpoint.absolute_catalog)
    if isinstance(endpoint, Files | Delta) and "://" not in endpoint.path:
        endpoint = replace(endpoint, path=absolute_path(endpoint.path))
    return uri_of(endpoint)


@contextmanager
def holding_lease(spark: SparkSession, files: FileTree, job: str) -> Iterator[Lease]:
    """Acquire the checkpoint's lease and hold it while the block runs; yield it.

    A holder that was just killed gets a moment to exit: its JVM may still be finishing a batch.
    """
    lease = Lease.of_this_process(job)
    lock = lock_to_hold(files)
    if lock is None:
        with lease_with_heartbeat(files, lease, _cannot_run(job)):
            yield lease
        return
    refuse_if_held(files, _cannot_run(job))
    with locked_by_jvm(spark, lock) as is_locked:
        if not is_locked:
            refuse_busy(files, _cannot_run(job))
        files.write(RECORD, lease.to_bytes())
        with recorded_end(files):
            yield lease


def _cannot_run(job: str) -> str:
    return f"cannot run {job}"
