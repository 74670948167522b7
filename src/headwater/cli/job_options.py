"""Options that ``check``, ``run`` and ``replay`` share: how a job is named and what takes the place of its parts."""

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

SourceUri = Annotated[
    str | None, typer.Option("--source", metavar="URI", help="URI to read from instead of the job's own source.")
]
SinkUri = Annotated[
    str | None, typer.Option("--sink", metavar="URI", help="URI to write to instead of the job's own sink.")
]
ModeName = Annotated[
    str | None, typer.Option("--mode", metavar="MODE", help="Output mode: complete, append or update.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the job. Repeatable.")
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting. Repeatable.")]


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """``name=value`` words as a dictionary."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageProblem(
                "bad-option",
                f"{option} {text} is not of the form name=value",
                remedy=f"{option} {name or 'name'}=VALUE",
            )
        found[name.strip()] = value.strip()
    return found


def chosen_job(
    reference: str,
    *,
    source: str | None = None,
    sink: str | None = None,
    mode: str | None = None,
    trigger: str | None = None,
    settings: Sequence[str] | None = None,
) -> Job:
    """The job that the words of a command line mean."""
    from headwater.jobs.loading import load_job
    from headwater.jobs.uris import sink_from_uri, source_from_uri

    job = load_job(reference).with_settings(pairs(settings, "--set"))
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


def jars_for(job: Job, checkpoint: str = "", letters: str | None = None) -> list[str]:
    """Only what this job needs is resolved: a first run on files waits for no download. ``letters`` is one more sink."""
    paths = [checkpoint, getattr(job.reads, "path", ""), getattr(job.writes, "path", "")]
    more = (letters or job.dead_letters or "").partition(":")[0]
    kafka = "kafka" in {job.reads.kind, job.writes.kind, more}
    return [*(["spark"] if kafka else []), *(["s3"] if any(path.startswith("s3a://") for path in paths) else [])]


def log_file(job: Job) -> Path:
    return Path(".headwater/logs") / f"{job.name}.log"


def recorded_job(files: FileTree, reference: str | None, source: str | None, settings: Sequence[str] | None) -> Job:
    """The job of a checkpoint, reading what its own run read: as named, or as ``headwater run`` wrote it down."""
    from headwater.checkpoint.record import read_job_record

    recorded = read_job_record(files)
    name = reference or recorded.reference
    if name is None:
        raise UsageProblem(
            "unknown-job",
            "this checkpoint does not know its job: others started it",
            evidence={"checkpoint": files.location},
            remedy="name the job: --job path/to/file.py:NAME",
        )
    if reference is None:
        _refuse_code_of_checkpoint(files, name)
    known = [f"{key}={value}" for key, value in recorded.settings.items()] if name == recorded.reference else []
    return chosen_job(name, source=source or recorded.source, mode=recorded.mode, settings=[*known, *(settings or [])])


def _refuse_code_of_checkpoint(files: FileTree, recorded: str) -> None:
    """A checkpoint that somebody sent must not bring the code along that looking at it would run."""
    from headwater.checkpoint.local_tree import LocalTree

    file = Path(recorded.partition(":")[0]).resolve()
    if isinstance(files, LocalTree) and file.is_relative_to(files.root.resolve()):
        raise UsageProblem(
            "job-in-checkpoint",
            "this checkpoint names a file of its own as its job, and that file would be run",
            evidence={"checkpoint": files.location, "job": recorded},
            remedy=f"if you trust it: --job {recorded}",
        )
