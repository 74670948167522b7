"""``headwater jobs``: the jobs of the gallery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import BUILD, JsonLines, app
from headwater.cli.job_options import job_names
from headwater.cli.output import json_lines, say, table

if TYPE_CHECKING:
    from headwater.jobs.job import Job


@app.command(rich_help_panel=BUILD)
def jobs(
    name: Annotated[str | None, typer.Argument(help="Show only this job, in detail.", autocompletion=job_names)] = None,
    as_json: JsonLines = False,
) -> None:
    """List the jobs of the gallery and their parameters.

    Example:
      headwater jobs browser-stats-stateful
    """
    from headwater.jobs.loading import gallery_jobs, load_job

    descriptions = [_description(job) for job in ([load_job(name)] if name else gallery_jobs())]
    if as_json:
        json_lines(descriptions)
        return
    if name:
        for label, value in descriptions[0].items():
            say(f"{label:<12} {_text(value)}")
        return
    rows = [[one["name"], one["mode"], _text(one["parameters"]), one["about"]] for one in descriptions]
    table(["job", "mode", "parameters", "description"], rows)


def _description(job: Job) -> dict[str, object]:
    from headwater.jobs.uris import sources_text, uri_of

    return {
        "name": job.name,
        "about": job.about,
        "mode": job.mode,
        "source": sources_text(job.inputs),
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
