"""What can be refused by looking at the job alone, before Spark is started."""

from __future__ import annotations

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Console, Files, Kafka, Memory, Rate, Socket, Table
from headwater.jobs.job import MODES, Job
from headwater.jobs.triggers import parse_trigger

APPEND_ONLY = (Files, Table)


def check_job(job: Job) -> None:
    """Raise ``JobRefused`` where the job's parts contradict each other."""
    if job.mode not in MODES:
        raise JobRefused("mode", f"{job.mode!r} is not an output mode", remedy="--mode append, complete or update")
    if job.per_batch and job.mode == "complete":
        raise JobRefused(
            "mode",
            f"{job.name} cannot run in complete mode: it works on each micro-batch by itself",
            evidence={"why": "complete gives the result over all batches, and a per-batch job carries nothing over"},
            remedy="--mode append or update",
        )
    if isinstance(job.writes, APPEND_ONLY) and job.mode != "append" and not job.per_batch:
        raise JobRefused(
            "mode",
            f"{job.name} cannot run in {job.mode} mode into {job.writes.kind}",
            evidence={"why": "rows in files and tables are final: Spark only appends there"},
            remedy="--mode append, or a sink that takes updates: --sink kafka://…, postgresql://…, console:",
        )
    _check_trigger(job)


def _check_trigger(job: Job) -> None:
    trigger = parse_trigger(job.trigger)
    if trigger.ends_by_itself and isinstance(job.reads, Socket | Rate):
        raise JobRefused(
            "trigger",
            f"a {job.reads.kind} source has no end, so --trigger {trigger.kind} cannot drain it",
            remedy='leave --trigger out, or --trigger "10 seconds"',
        )
    if trigger.kind != "real-time":
        return
    if job.per_batch or job.mode != "update":
        raise JobRefused(
            "trigger",
            "the real-time trigger takes stateless jobs in update mode only",
            evidence={"mode": job.mode, "per batch": str(job.per_batch).lower()},
            remedy='--mode update, or --trigger "1 second"',
        )
    if not isinstance(job.reads, Kafka) or not isinstance(job.writes, Kafka | Console):
        raise JobRefused(
            "trigger",
            "the real-time trigger reads from Kafka and writes to Kafka or the console only",
            evidence={"source": job.reads.kind, "sink": job.writes.kind},
            remedy='--trigger "1 second"',
        )


def check_restart(job: Job, *, checkpoint: str) -> None:
    """For a checkpoint with history: a memory table died with its process, and only complete mode fills it anew."""
    if isinstance(job.writes, Memory) and job.mode != "complete":
        raise JobRefused(
            "mode",
            f"{job.name} cannot go on in {job.mode} mode: its memory table died with the process that filled it",
            evidence={"checkpoint": checkpoint},
            remedy=("" if job.per_batch else "--mode complete, ") + "another sink, or a new --checkpoint",
        )
