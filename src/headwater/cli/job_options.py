"""Options of the commands that take a job, and the job that they select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.jobs.job import Job


def job_names(incomplete: str) -> list[str]:
    """Complete the names of gallery jobs."""
    from headwater.jobs.loading import gallery_names

    return [name for name in gallery_names() if name.startswith(incomplete)]


JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Job: a gallery name, module:NAME or path/to/file.py:NAME.", autocompletion=job_names
    ),
]
SourceUri = Annotated[
    str | None, typer.Option("--source", metavar="URI", help="Source to read instead of the job's own.")
]
SinkUri = Annotated[str | None, typer.Option("--sink", metavar="URI", help="Sink to write instead of the job's own.")]
ModeName = Annotated[
    str | None, typer.Option("--mode", metavar="MODE", help="Output mode: complete, append or update.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Parameter of the job. Repeatable.")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Spark configuration property. Repeatable.")
]


def parse_pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return the ``name=value`` texts of a repeatable option as a dictionary."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageProblem(
                "bad-option",
                f"{option} {text} is not of the form name=value",
                remedy=f"{option} {name or 'name'}=VALUE",
            )
        pairs[name.strip()] = value.strip()
    return pairs


def select_job(
    reference: str,
    *,
    source: str | None = None,
    sink: str | None = None,
    mode: str | None = None,
    trigger: str | None = None,
    settings: Sequence[str] | None = None,
) -> Job:
    """Load a job and apply the options of the command line to it."""
    from headwater.jobs.loading import load_job
    from headwater.jobs.uris import sink_from_uri, source_from_uri

    job = load_job(reference).with_settings(parse_pairs(settings, "--set"))
    changes: dict[str, Any] = {}
    if source:
        changes["reads"] = source_from_uri(source, job.reads)
    if sink:
        changes["writes"] = sink_from_uri(sink, job.writes)
    if mode:
        changes["mode"] = mode
    if trigger:
        changes["trigger"] = trigger
    return replace(job, **changes)


def recorded_job(files: FileTree, reference: str | None, source: str | None, settings: Sequence[str] | None) -> Job:
    """Return the job of a checkpoint with the source it ran on: the named job, or the one that ``run`` recorded."""
    from headwater.checkpoint.record import read_job_record
    from headwater.spark.recorded_job import job_reference

    name = job_reference(files, reference)
    recorded = read_job_record(files)
    known = [f"{key}={value}" for key, value in recorded.settings.items()] if name == recorded.reference else []
    return select_job(name, source=source or recorded.source, mode=recorded.mode, settings=[*known, *(settings or [])])


def jars_for(job: Job, checkpoint: str = "", dead_letters: str | None = None) -> list[str]:
    """Return the jar configurations that a job needs, so that a first run on files downloads nothing.

    ``dead_letters`` is the URI of a further sink.
    """
    paths = [checkpoint, getattr(job.reads, "path", ""), getattr(job.writes, "path", "")]
    more = (dead_letters or job.dead_letters or "").partition(":")[0]
    kafka = "kafka" in {job.reads.kind, job.writes.kind, more}
    return [*(["spark"] if kafka else []), *(["s3"] if any(path.startswith("s3a://") for path in paths) else [])]


def log_file(job: Job) -> Path:
    """Return the file that Spark's log of a job is written to."""
    return Path(".headwater/logs") / f"{job.name}.log"
