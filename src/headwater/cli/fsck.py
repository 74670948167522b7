"""``headwater fsck``: what is wrong with a checkpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.names import CheckpointName
from headwater.cli.output import json_line, note, say

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.core.finding import Finding


@app.command(rich_help_panel=LOOK)
def fsck(
    checkpoint: CheckpointName,
    sink: Annotated[
        str | None, typer.Option(metavar="files:DIR", help="The query's file sink, to be checked as well.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Then repair what can be proven; undo takes it back.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Repair without asking: the query is stopped.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Check every invariant of a checkpoint, one finding a line. Without --repair nothing is changed.

    The sink's folder is taken from what `headwater run` wrote down; for other checkpoints --sink names it.
    Exits with 1 when there is an error. --repair finishes a change of ours that was cut short, and sets leftover
    checksums and temporary files aside.

    Example:
      headwater fsck /data/checkpoints/visits --sink files:/data/out/visits
    """
    from headwater.checkpoint.locate import open_checkpoint

    files = open_checkpoint(checkpoint)
    found = _findings(files, _sink(files, sink))
    _tell(found, as_json=as_json)
    if repair and _repaired(files, found, yes=yes, as_json=as_json):
        found = _findings(files, _sink(files, sink))
        if not as_json:
            note(f"repaired; left: {_summary(found)}")
    worst = {finding.severity for finding in found}
    if "error" in worst or (strict and "warning" in worst):
        raise typer.Exit(1)


def _findings(files: FileTree, sink: FileTree | None) -> list[Finding]:
    from headwater.checkpoint.checks import run_checks
    from headwater.checkpoint.checks.scene import Scene

    return list(run_checks(Scene(files, now_ms=time.time_ns() // 1_000_000, sink=sink)))


def _tell(found: list[Finding], *, as_json: bool) -> None:
    for finding in found:
        if as_json:
            json_line(finding.as_dict())
        else:
            say(_line(finding))
    if not as_json:
        note(_summary(found))


def _repaired(files: FileTree, found: list[Finding], *, yes: bool, as_json: bool) -> bool:
    """Whether anything was changed. An interrupted change is ended first: what it moves may look like damage."""
    changed = False
    if any(finding.code == "interrupted-operation" for finding in found):
        if not _ended(files, yes=yes):
            return False
        changed = True
        found = _findings(files, None)
    return _set_aside(files, found, yes=yes, as_json=as_json) or changed


def _ended(files: FileTree, *, yes: bool) -> bool:
    from headwater.cli.changing import StepProgress, confirmed
    from headwater.timemachine.executor import end_interrupted
    from headwater.timemachine.journal import read_pending

    pending = read_pending(files)
    if pending is None:
        return False
    note(f"repair: finish the {pending.change.verb} that was cut short ({pending.change.about})")
    if not confirmed("Finish it?", yes=yes):
        return False
    end_interrupted(files, progress=StepProgress())
    return True


def _set_aside(files: FileTree, found: list[Finding], *, yes: bool, as_json: bool) -> bool:
    from headwater.cli.changing import StepProgress, confirmed
    from headwater.timemachine.repair import plan_repair

    plan = plan_repair(files, found)
    if plan is None:
        note("nothing that could be repaired with proof")
        return False
    if as_json:
        json_line(plan.as_dict())
    else:
        for path in plan.set_aside:
            note(f"repair: set aside {path}")
    if not confirmed("Repair?", yes=yes):
        return False
    plan.apply(progress=StepProgress())
    return True


def _sink(files: FileTree, given: str | None) -> FileTree | None:
    from headwater.checkpoint.record import FILES, sink_of
    from headwater.core.errors import UsageProblem, redact

    if given is not None and not given.startswith(FILES):
        raise UsageProblem(
            "not-a-file-sink",
            f"only a file sink leaves something to check, and {redact(given)!r} is none",
            remedy="headwater fsck CKPT --sink files:DIR",
        )
    return sink_of(files, given)


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
