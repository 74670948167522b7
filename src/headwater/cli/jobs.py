"""``headwater jobs``: the gallery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import BUILD, app
from headwater.cli.names import job_names
from headwater.cli.output import json_line, say, table

if TYPE_CHECKING:
    from headwater.jobs.job import Job


@app.command(rich_help_panel=BUILD)
def jobs(
    name: Annotated[
        str | None, typer.Argument(help="Show this job alone, with its parameters.", autocompletion=job_names)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the jobs of the gallery with their parameters.

    Example:
      headwater jobs browser-stats-stateful
    """
    from headwater.jobs.loading import gallery_jobs, load_job

    described = [_described(job) for job in ([load_job(name)] if name else gallery_jobs())]
    if as_json:
        for one in described:
            json_line(one)
        return
    if name:
        for label, value in described[0].items():
            say(f"{label:<12} {_text(value)}")
        return
    rows = [[one["name"], one["mode"], _text(one["parameters"]), one["about"]] for one in described]
    table(["job", "mode", "parameters", "what it does"], rows)


def _described(job: Job) -> dict[str, object]:
    from headwater.jobs.uris import uri_of

    return {
        "name": job.name,
        "about": job.about,
        "mode": job.mode,
        "source": uri_of(job.reads),
        "sink": uri_of(job.writes),
        "per_batch": job.per_batch,
        "parameters": job.parameters,
    }


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key}={str(item).lower() if isinstance(item, bool) else item}" for key, item in value.items()
        )
    return str(value)
