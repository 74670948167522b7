"""``headwater undo``: take back the last change."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.changing import StepProgress, confirmed
from headwater.cli.names import CheckpointName
from headwater.cli.output import json_line, note, say


@app.command(rich_help_panel=CHANGE)
def undo(
    checkpoint: CheckpointName,
    drop_newer: Annotated[
        bool, typer.Option("--drop-newer", help="Give up batches that were committed since.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask: the query is stopped.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The plan as one JSON object.")] = False,
) -> None:
    """Put back exactly what the last rewind (or repair, or repartition) set aside. Can be repeated.

    Example:
      headwater undo visits-windows-counter
    """
    from headwater.checkpoint.locate import open_checkpoint, open_files
    from headwater.timemachine.executor import refuse_if_pending
    from headwater.timemachine.undo import find_undo, plan_undo
    from headwater.views.plans import undo_lines

    files = open_checkpoint(checkpoint)
    refuse_if_pending(files)
    folder = find_undo(files).change.sink
    plan = plan_undo(files, sink=open_files(folder) if folder else None, drop_newer=drop_newer)
    if as_json:
        json_line(plan.as_dict())
    else:
        for line in undo_lines(plan):
            say(line)
    if dry_run or not confirmed("Undo?", yes=yes):
        return
    plan.apply(progress=StepProgress())
    note("done: the checkpoint is as it was before")
