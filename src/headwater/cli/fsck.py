"""``headwater fsck``: what is wrong with a checkpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.output import json_line, note, say

if TYPE_CHECKING:
    from headwater.checkpoint.files import Files
    from headwater.core.finding import Finding


@app.command(rich_help_panel=LOOK)
def fsck(
    checkpoint: Annotated[str, typer.Argument(metavar="CKPT", help="A folder, an object-store URL or a job's name.")],
    sink: Annotated[
        str | None, typer.Option(metavar="files:DIR", help="The query's file sink, to be checked as well.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Check every invariant of a checkpoint, one finding a line. Changes nothing.

    The sink's folder is taken from what `headwater run` wrote down; for other checkpoints --sink names it.
    Exits with 1 when there is an error. Each code is explained in docs/reference/fsck.md.

    Example: headwater fsck /data/checkpoints/visits --sink files:/data/out/visits
    """
    from headwater.checkpoint.checks import run_checks
    from headwater.checkpoint.checks.scene import Scene
    from headwater.checkpoint.locate import open_checkpoint

    files = open_checkpoint(checkpoint)
    scene = Scene(files, now_ms=time.time_ns() // 1_000_000, sink=_sink(files, sink))
    found = []
    for finding in run_checks(scene):
        found.append(finding)
        if as_json:
            json_line(finding.as_dict())
        else:
            say(_line(finding))
    if not as_json:
        note(_summary(found))
    worst = {finding.severity for finding in found}
    if "error" in worst or (strict and "warning" in worst):
        raise typer.Exit(1)


def _sink(files: Files, given: str | None) -> Files | None:
    from headwater.checkpoint.files import open_files
    from headwater.checkpoint.job_record import FILES, folder_of, read_job_record
    from headwater.core.errors import UsageProblem

    if given is None:
        recorded = read_job_record(files).sink_folder
        return open_files(recorded) if recorded else None
    if not given.startswith(FILES):
        raise UsageProblem(
            "not-a-file-sink",
            f"only a file sink leaves something to check, and {given!r} is none",
            remedy="headwater fsck CKPT --sink files:DIR",
        )
    return open_files(folder_of(given))


def _line(finding: Finding) -> str:
    fix = " [repairable]" if finding.repairable else ""
    return f"{finding.severity:<7}  {finding.code}  {finding.path}: {finding.message}{fix}"


def _summary(found: list[Finding]) -> str:
    from headwater.views.words import count

    counts = [
        count(number, noun)
        for severity, noun in (("error", "error"), ("warning", "warning"), ("info", "note"))
        if (number := sum(finding.severity == severity for finding in found))
    ]
    return ", ".join(counts) or "nothing wrong"
