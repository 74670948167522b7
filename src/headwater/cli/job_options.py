"""Options of the commands that take a job, and the job that they select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
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
    from headwater.jobs import loading

    pairs = parse_pairs(settings, "--set")
    return loading.select_job(reference, sources=source or (), sink=sink, mode=mode, trigger=trigger, settings=pairs)
