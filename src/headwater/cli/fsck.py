"""``headwater fsck``: check the consistency of a checkpoint, and repair it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointsOrRoots, StepProgress, confirm
from headwater.cli.output import json_line, note, say
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.core.finding import Finding
    from headwater.fleet.fleet import Fleet


_REMEDY = "run the command without --repair to review the findings, then run it with --repair --yes"


@app.command(rich_help_panel=INSPECT)
def fsck(
    checkpoints: CheckpointsOrRoots,
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Sink of the query, files:DIR, delta:PATH or iceberg:TABLE; it is checked as well."
        ),
    ] = None,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources", help="Check the sources too: query Kafka's brokers, and list the folders of file sources."
        ),
    ] = False,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]URI", help="With --sources: broker of a Kafka source, if it was not recorded. Repeatable."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 on warnings too.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired safely. Can be undone.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Repair without confirmation. The query must be stopped.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Check the consistency of a checkpoint.

    Prints one finding per line and exits with status 1 if there is an error. Nothing is changed without --repair, which
    finishes a Headwater change that was interrupted and sets leftover checksums and temporary files aside.

    A file sink or a table is checked as well if `headwater run` has recorded it. For other checkpoints, name it
    with --sink.

    With --sources, the brokers of Kafka sources are queried, to find out whether all planned offsets are available,
    whether a topic was recreated, and when retention overtakes the stream. Input files that vanished, changed or are
    ignored by Spark are reported as well.

    For a folder or bucket with checkpoints below it, or for several checkpoints, checks each of them; the findings in
    JSON then also name the checkpoint.

    Examples:
      headwater fsck /data/checkpoints/visits --sink files:/data/out/visits
      headwater fsck browser-stats-stateful --sources
      headwater fsck /data/checkpoints
    """
    from headwater.fleet.fleet import Fleet
    from headwater.fleet.roots import checkpoint_or_fleet, refuse_options
    from headwater.timemachine.tables import fsck as check

    if source and not sources:
        raise UsageProblem("bad-option", "--source has no effect without --sources", remedy="add --sources")
    files = checkpoint_or_fleet(checkpoints)
    if isinstance(files, Fleet):
        refuse_options({"--repair": repair, "--sink": sink, "--source": source}, "fsck")
        _check_all(files, sources=sources, strict=strict, as_json=as_json)
        return
    of_sources = list(_check_sources(files, source or ())) if sources else []
    found = [*check(files, sink), *of_sources]
    _print_findings(found, as_json=as_json)
    if repair and _repair(files, sink, found, yes=yes):
        found = [*check(files, sink), *of_sources]
        if not as_json:
            note(f"repaired; remaining: {_summary(found)}")
    worst = {finding.severity for finding in found}
    if "error" in worst or (strict and "warning" in worst):
        raise typer.Exit(1)


def _check_all(fleet: Fleet, *, sources: bool, strict: bool, as_json: bool) -> None:
    from headwater.checkpoint.locate import open_files
    from headwater.core.text import count

    streams = fleet.refresh().streams
    failed = 0
    for problem in fleet.snapshot.problems:
        note(f"warning: {problem}")
    for stream in streams:
        found = list(fleet.check(stream.name))
        if sources:
            found += [one for one in _try_sources(open_files(stream.location)) if one not in found]
        worst = {finding.severity for finding in found}
        failed += "error" in worst or (strict and "warning" in worst)
        if not as_json:
            say(f"{stream.name}: {_summary(found)}")
        for finding in found:
            if as_json:
                json_line({"checkpoint": stream.location, **finding.as_dict()})
            elif finding.severity != "info":
                say(f"  {_line(finding)}")
    if not as_json:
        note(f"{count(len(streams), 'checkpoint')}, {failed or 'none'} with {'findings' if strict else 'errors'}")
    if failed or fleet.snapshot.problems:
        raise typer.Exit(1)


def _check_sources(files: FileTree, given: Sequence[str] = ()) -> tuple[Finding, ...]:
    from headwater.guards.check import check_sources

    return check_sources(files, given=given).findings


def _try_sources(files: FileTree) -> tuple[Finding, ...]:
    """Return the findings on the sources of one of several checkpoints, whose logs may be unreadable."""
    from headwater.core.errors import HeadwaterError
    from headwater.core.finding import Finding

    try:
        return _check_sources(files)
    except HeadwaterError as error:
        return (Finding("error", error.code, "", error.problem),)


def _print_findings(found: list[Finding], *, as_json: bool) -> None:
    for finding in found:
        if as_json:
            json_line(finding.as_dict())
        else:
            say(_line(finding))
    if not as_json:
        note(_summary(found))


def _repair(files: FileTree, sink: str | None, found: list[Finding], *, yes: bool) -> bool:
    """Repair the findings and return whether anything was changed.

    An interrupted change is finished first, because the files that it was moving may appear as damage. A cascade that was
    interrupted is refused: it is finished or rolled back together with its other streams.
    """
    from headwater.timemachine.journal import refuse_if_pending
    from headwater.timemachine.tables import fsck as check

    changed = False
    interrupted = [finding for finding in found if finding.code == "interrupted-operation"]
    if any(not finding.repairable for finding in interrupted):
        refuse_if_pending(files)
    elif interrupted:
        if not _finish_interrupted(files, yes=yes):
            return False
        changed = True
        found = check(files, sink)
    return _set_aside(files, found, yes=yes) or changed


def _finish_interrupted(files: FileTree, *, yes: bool) -> bool:
    from headwater.cli.table_options import open_recorded_table
    from headwater.timemachine.interrupted import finish_interrupted
    from headwater.timemachine.journal import read_pending

    pending = read_pending(files)
    if pending is None:
        return False
    note(f"repair: finish the interrupted {pending.change.verb} ({pending.change.about})")
    if not confirm("Finish it?", yes=yes, remedy=_REMEDY):
        return False
    finish_interrupted(files, open_table=open_recorded_table, progress=StepProgress())
    return True


def _set_aside(files: FileTree, found: list[Finding], *, yes: bool) -> bool:
    from headwater.timemachine.repair import plan_repair

    plan = plan_repair(files, found)
    if plan is None:
        note("nothing can be repaired safely")
        return False
    for path in plan.set_aside:
        note(f"repair: set aside {path}")
    if not confirm("Repair?", yes=yes, remedy=_REMEDY):
        return False
    plan.apply(progress=StepProgress())
    return True


def _line(finding: Finding) -> str:
    suffix = " [repairable]" if finding.repairable else ""
    return f"{finding.severity:<7}  {finding.code}  {finding.path}: {finding.message}{suffix}"


def _summary(found: Sequence[Finding]) -> str:
    from headwater.core.text import count

    counts = [
        count(number, noun)
        for severity, noun in (("error", "error"), ("warning", "warning"), ("info", "note"))
        if (number := sum(finding.severity == severity for finding in found))
    ]
    return ", ".join(counts) or "no findings"
