"""What the commands on a checkpoint share: naming it, opening it, and planning and confirming a change."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.output import StatusLine, json_line, note, say
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree


def checkpoint_names(incomplete: str) -> list[str]:
    """Complete the names of jobs that have a checkpoint in the default location; a shell completes paths itself."""
    from headwater.checkpoint.locate import known_names

    return [name for name in known_names() if name.startswith(incomplete)]


CheckpointName = Annotated[
    str,
    typer.Argument(
        metavar="CKPT",
        help="Checkpoint: a folder, an object-store URL, a job name, or PIPELINE:FLOW.",
        autocompletion=checkpoint_names,
    ),
]
CheckpointsOrRoots = Annotated[
    list[str],
    typer.Argument(
        metavar="CKPT|ROOT...",
        help="A checkpoint (folder, object-store URL, job name or PIPELINE:FLOW), a declarative pipeline (its spec or "
        "storage folder), or folders and URLs with checkpoints below them.",
        autocompletion=checkpoint_names,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation. The query must be stopped.")]
PlanJson = Annotated[bool, typer.Option("--json", help="Print the plan as one JSON object.")]


def open_to_read(checkpoint: str) -> FileTree:
    """Open a checkpoint for reading. Warn if a change to it was interrupted."""
    from headwater.checkpoint.locate import open_checkpoint

    files = open_checkpoint(checkpoint)
    note_promotion(checkpoint, files)
    warn_if_interrupted(files)
    return files


def note_promotion(checkpoint: str, files: FileTree) -> None:
    """Print a note if a name refers to a fork that was promoted."""
    from headwater.checkpoint.locate import absolute_location, candidates
    from headwater.checkpoint.pipelines import flow_at

    if flow_at(files.location):
        return
    if absolute_location(files.location) not in map(absolute_location, candidates(checkpoint)):
        note(f"{checkpoint} is now {files.location}: the fork was promoted in its place")


def warn_if_interrupted(files: FileTree) -> None:
    """Print a warning if a change is in progress or was interrupted, or if the stream continues elsewhere."""
    from headwater.checkpoint.layout import CASCADE_FILE, PENDING_FILE
    from headwater.checkpoint.moved import POINTER, read_pointer

    if files.exists(POINTER) and (pointer := read_pointer(files)):
        note(f"warning: this checkpoint was moved, and the stream continues at {pointer.to}")
    if not (files.exists(PENDING_FILE) or files.exists(CASCADE_FILE)):
        return
    from headwater.checkpoint.lease import live_lease

    if lease := live_lease(files):
        note(f"warning: {lease.holder} is running on this checkpoint; the output may show a half-finished change")
    else:
        note(
            "warning: a change to this checkpoint was interrupted; the output may show a half-finished change\n"
            f"help: headwater rewind {files.location} --resume   (or --abort to roll it back)"
        )


def open_to_change(checkpoint: str) -> FileTree:
    """Open a checkpoint for a change. Raise if an earlier change to it was interrupted."""
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.timemachine.journal import refuse_if_pending

    files = open_checkpoint(checkpoint)
    note_promotion(checkpoint, files)
    refuse_if_pending(files)
    return files


def given_options(options: Mapping[str, object]) -> list[str]:
    """Return the names of the options that the user gave, from the values of all of them."""
    return [name for name, value in options.items() if value is not None and value is not False and value != []]


def print_plan(plan: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print a plan as one JSON object or as text."""
    if as_json:
        json_line(plan)
        return
    for line in lines:
        say(line)


def confirm(
    question: str, *, yes: bool, remedy: str = "review the plan with --dry-run, then run the same command with --yes"
) -> bool:
    """Ask on the terminal whether to continue. Without a terminal, require ``--yes``; ``remedy`` says how."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageProblem(
            "not-confirmed",
            "nothing was changed: there is no terminal to ask for confirmation",
            remedy=remedy,
        )
    answer = typer.prompt(f"{question} Type yes to continue", default="no", show_default=False, err=True)
    if answer.strip().lower() != "yes":
        note("nothing was changed")
        return False
    return True


class StepProgress:
    """Progress of a change on the last line of the terminal: ``150 of 4,567 steps``."""

    def __init__(self) -> None:
        self._line = StatusLine()

    def __call__(self, done: int, of: int) -> None:
        if done % 50 == 0 or done == of:
            self._line.show(f"{done:,} of {of:,} steps")
        if done == of:
            self._line.clear()
