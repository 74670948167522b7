"""``headwater undo``: undo the last change to a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, Yes
from headwater.cli.output import note


@app.command(rich_help_panel=CHANGE)
def undo(
    checkpoint: CheckpointName,
    drop_newer: Annotated[
        bool, typer.Option("--drop-newer", help="Discard the batches that were committed since.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: PlanJson = False,
) -> None:
    """Undo the last rewind, repair or repartition.

    Moves the files that were set aside back to where they were. Repeat the command to undo earlier changes.

    Example:
      headwater undo visits-windows-counter
    """
    from headwater.cli.checkpoint_options import StepProgress, confirm, open_to_change, print_plan
    from headwater.timemachine.undo import plan_undo
    from headwater.views.plans import undo_text

    files = open_to_change(checkpoint)
    plan = plan_undo(files, drop_newer=drop_newer)
    print_plan(plan.as_dict(), undo_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm("Undo it?", yes=yes):
        return
    plan.apply(progress=StepProgress())
    note(f"done: the {plan.undoes.change.verb} was undone")
