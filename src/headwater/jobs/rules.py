"""Checks on the job's definition alone, before Spark starts."""

from __future__ import annotations

from typing import NoReturn

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Console, Delta, Files, Iceberg, Kafka, Memory, Postgres, Rate, Socket, Table
from headwater.jobs.job import MODES, Job
from headwater.jobs.triggers import parse_trigger
from headwater.jobs.uris import sources_text, uri_of

APPEND_ONLY = (Files, Table)
# Options of a Kafka source with which a real-time query fails in its first batch.
LIMITS_OF_BATCHES = (
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
    "minpartitions",
    "endingtimestamp",
)


def check_job(job: Job) -> None:
    """Raise ``JobRefused`` if the job's mode, trigger, source and sink contradict each other."""
    if job.mode not in MODES:
        raise JobRefused("mode", f"{job.mode!r} is not an output mode", remedy="--mode append, complete or update")
    if job.per_batch and job.mode == "complete":
        raise JobRefused(
            "mode",
            f"{job.name} cannot run in complete mode: it processes each micro-batch by itself",
            evidence={
                "why": "complete emits the result over all batches, and a per-batch job keeps nothing between them"
            },
            remedy="--mode append or update",
        )
    if isinstance(job.writes, APPEND_ONLY) and job.mode != "append" and not job.per_batch:
        raise JobRefused(
            "mode",
            f"{job.name} cannot run in {job.mode} mode into {job.writes.kind}",
            evidence={"why": "rows in files and tables are final: Spark only appends to them"},
            remedy="--mode append, or a sink that accepts updates: --sink kafka://…, postgresql://…, console:",
        )
    _check_table_format(job)
    if isinstance(job.writes, Postgres) and not job.writes.key_names:
        raise JobRefused(
            "sink-key",
            f"{job.name} cannot upsert rows into {job.writes.table} without the columns of a key",
            remedy=f'Postgres(url, {job.writes.table!r}, key="a,b"), or key=a,b in the URI',
        )
    if job.per_batch and len(job.sources) > 1:
        raise JobRefused(
            "per-batch-sources",
            f"{job.name} cannot process each micro-batch by itself: it has {len(job.sources)} streaming sources",
            evidence={"sources": ", ".join(job.sources), "why": "Spark hands a micro-batch over as one DataFrame"},
            remedy="per_batch=False, or make all but one of them Static",
        )
    _check_trigger(job)


def _check_table_format(job: Job) -> None:
    """Refuse an output mode that a Delta or Iceberg table cannot take."""
    sink = job.writes
    if not isinstance(sink, Delta | Iceberg):
        return
    keys = sink.merge_names if isinstance(sink, Delta) else ()
    if keys and job.mode == "complete":
        raise JobRefused(
            "mode",
            f"{job.name} cannot merge into {uri_of(sink)} in complete mode",
            evidence={
                "why": "complete replaces all rows of the table in each batch, so there is nothing to merge with"
            },
            remedy="--mode update, or omit merge_on",
        )
    if job.mode == "update" and not keys and not job.per_batch:
        raise JobRefused(
            "mode",
            f"{job.name} cannot run in update mode into {sink.kind} without merge_on"
            if isinstance(sink, Delta)
            else f"{job.name} cannot run in update mode into {sink.kind}",
            evidence={"why": "each batch has newer versions of rows that are already in the table"},
            remedy=f"name the columns that identify a row: delta:{sink.path}?merge_on=COLUMN,COLUMN"
            if isinstance(sink, Delta)
            else "--mode append or complete, or a Delta table, which can merge: --sink delta:PATH?merge_on=COLUMN",
        )


def _check_trigger(job: Job) -> None:
    trigger = parse_trigger(job.trigger)
    endless = next((source for source in job.sources.values() if isinstance(source, Socket | Rate)), None)
    if trigger.ends_by_itself and endless is not None:
        raise JobRefused(
            "trigger",
            f"a {endless.kind} source has no end, so --trigger {trigger.kind} cannot drain it",
            remedy='omit --trigger, or use --trigger "10 seconds"',
        )
    if trigger.kind != "real-time":
        return
    if job.per_batch or job.mode != "update":
        raise JobRefused(
            "trigger",
            "the real-time trigger supports only update mode, and no per-batch jobs",
            evidence={"mode": job.mode, "per batch": str(job.per_batch).lower()},
            remedy='--mode update, or --trigger "1 second"',
        )
    kinds = sorted({source.kind for source in job.sources.values()})
    if kinds != ["kafka"] or not isinstance(job.writes, Kafka | Console):
        raise JobRefused(
            "trigger",
            "the real-time trigger supports only Kafka as source, and Kafka or the console as sink",
            evidence={"source": ", ".join(kinds), "sink": job.writes.kind},
            remedy='--trigger "1 second"',
        )
    topics = [one for one in (*job.sources.values(), job.writes) if isinstance(one, Kafka)]
    in_python = next((one.format for one in topics if one.format in ("avro", "protobuf")), None)
    if in_python is not None:
        raise JobRefused(
            "trigger",
            f"the real-time trigger does not support {in_python} records, which Python workers decode and encode",
            remedy='--trigger "1 second", or decode the values with Spark\'s functions: format="raw"',
        )
    limits = [name for one in topics for name in one.options if name.lower() in LIMITS_OF_BATCHES]
    if limits:
        raise JobRefused(
            "trigger",
            f"the real-time trigger does not support {limits[0]}: its batches end by time",
            evidence={"options": ", ".join(limits)},
            remedy=f'omit {limits[0]}, or --trigger "1 second"',
        )


def check_restart(job: Job, *, checkpoint: str) -> None:
    """Refuse to resume what was lost with its process: lines of a socket, or a memory table outside complete mode."""
    if has_socket(job):
        refuse_socket_checkpoint(job, checkpoint)
    if isinstance(job.writes, Memory) and job.mode != "complete":
        raise JobRefused(
            "mode",
            f"{job.name} cannot resume in {job.mode} mode: its memory table was lost with the process that filled it",
            evidence={"checkpoint": checkpoint},
            remedy=("" if job.per_batch else "--mode complete, ") + "another sink, or a new --checkpoint",
        )


def has_socket(job: Job) -> bool:
    """Return whether the job reads from a socket, so that no run can resume an earlier one."""
    return any(isinstance(source, Socket) for source in job.sources.values())


def refuse_socket_checkpoint(job: Job, checkpoint: str) -> NoReturn:
    """Refuse to run a job that reads from a socket on a checkpoint that the user chose, or on one with batches."""
    raise JobRefused(
        "socket-checkpoint",
        f"{job.name} cannot run on a given checkpoint: a socket cannot be read again, so a run cannot resume an earlier one",
        evidence={"source": sources_text(job.inputs), "checkpoint": checkpoint},
        remedy="omit --checkpoint (each run gets its own checkpoint), or read from Kafka or files",
    )
