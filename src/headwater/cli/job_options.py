"""Options of the commands that take a job, and the job that they select."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.jobs.job import Job


NAMED_SOURCE = re.compile(r"[A-Za-z0-9_]+=")


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
SourceUris = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="URI",
        help="Source to read instead of the job's own; NAME=URI if the job names its sources. Repeatable.",
    ),
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
    source: Sequence[str] | None = None,
    sink: str | None = None,
    mode: str | None = None,
    trigger: str | None = None,
    settings: Sequence[str] | None = None,
) -> Job:
    """Load a job and apply the options of the command line to it."""
    from headwater.jobs.loading import load_job
    from headwater.jobs.uris import inputs_from_uris, sink_from_uri

    job = load_job(reference).with_settings(parse_pairs(settings, "--set"))
    if source:
        job = job.with_inputs(inputs_from_uris(named_sources(source, job), job.inputs))
    changes: dict[str, Any] = {}
    if sink:
        changes["writes"] = sink_from_uri(sink, job.writes)
    if mode:
        changes["mode"] = mode
    if trigger:
        changes["trigger"] = trigger
    return replace(job, **changes)


def named_sources(texts: Sequence[str], job: Job) -> dict[str, str]:
    """Return the URIs of ``--source`` by the names of the inputs that they replace."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, uri = text.partition("=") if NAMED_SOURCE.match(text) else ("", "", text)
        known = {"sources": ", ".join(job.inputs)} if any(job.inputs) else None
        if name not in job.inputs:
            if name:
                problem = (
                    f"{job.name} has no source named {name!r}" if known else f"{job.name} does not name its source"
                )
            else:
                problem = f"{job.name} names its sources, so --source needs a name"
            remedy = f"--source {next(iter(job.inputs))}={uri}" if known else f"--source {uri}"
            raise UsageProblem("unknown-source", problem, evidence=known, remedy=remedy)
        if name in found:
            what = f"source {name!r}" if name else "the source"
            raise UsageProblem(
                "bad-option",
                f"{what} is given twice",
                evidence={"found": f"{found[name]}, {uri}"},
                remedy="give it once",
            )
        found[name] = uri
    return found


def recorded_sources(sources: Mapping[str, str], given: Sequence[str] | None, job: Job) -> list[str]:
    """Return the URIs that a run recorded, each replaced by the one given for its name."""
    named = {**{name: uri for name, uri in sources.items() if name in job.inputs}, **named_sources(given or (), job)}
    return [f"{name}={uri}" if name else uri for name, uri in named.items()]


def recorded_job(
    files: FileTree, reference: str | None, source: Sequence[str] | None, settings: Sequence[str] | None
) -> Job:
    """Return the job of a checkpoint with the source it ran on: the named job, or the one that ``run`` recorded."""
    from headwater.checkpoint.record import read_job_record
    from headwater.jobs.loading import load_job
    from headwater.spark.recorded_job import job_reference

    name = job_reference(files, reference)
    recorded = read_job_record(files)
    known = [f"{key}={value}" for key, value in recorded.settings.items()] if name == recorded.reference else []
    sources = recorded_sources(recorded.inputs, source, load_job(name))
    return select_job(name, source=sources, mode=recorded.mode, settings=[*known, *(settings or [])])


def jars_for(job: Job, checkpoint: str = "", dead_letters: str | None = None) -> list[str]:
    """Return the jar configurations that a job needs, so that a first run on files downloads nothing.

    ``dead_letters`` is the URI of a further sink.
    """
    ends = [*job.sources.values(), *(static.table for static in job.statics.values()), job.writes]
    paths = [checkpoint, *(getattr(end, "path", "") for end in ends)]
    more = (dead_letters or job.dead_letters or "").partition(":")[0]
    kafka = "kafka" in {more, *(end.kind for end in ends)}
    return [*(["spark"] if kafka else []), *(["s3"] if any(path.startswith("s3a://") for path in paths) else [])]


def log_file(job: Job) -> Path:
    """Return the file that Spark's log of a job is written to."""
    return Path(".headwater/logs") / f"{job.name}.log"
