"""``headwater move``: take a checkpoint to another folder, disk or object store."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, StepProgress, Yes
from headwater.cli.output import json_line, note


@app.command(rich_help_panel=CHANGE)
def move(
    checkpoint: CheckpointName,
    destination: Annotated[str, typer.Argument(metavar="DEST", help="New folder or URL, missing or empty.")],
    folders: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OLD=NEW",
            help="Also move a folder that the query reads or writes: files of a source, the sink, a Delta table. "
            "Repeatable.",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: PlanJson = False,
) -> None:
    """Move a checkpoint to another folder, disk or object store.

    Copies everything, rewrites the absolute paths in it, and reads every copy back. Only then does the old location get
    a pointer to the new one, and headwater run refuses the old one. The stream continues at the new location and reads no
    file twice. The old files stay until you remove them, and headwater undo switches back to them.

    If the command is interrupted, the old checkpoint is unchanged. Run the same command again to continue.

    Examples:
      headwater move visits s3a://bucket/checkpoints/visits --dry-run
      headwater move retail-sales /disk2/retail --map /data/sales=/disk2/sales --map out=/disk2/out
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.timemachine.move_plan import plan_move
    from headwater.views.move_text import move_text, next_run

    plan = plan_move(open_checkpoint(checkpoint), destination, folders=folders or ())
    print_plan(plan.as_dict(), move_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm(f"Move it to {plan.into.location}?", yes=yes):
        return
    entry = plan.apply(StepProgress())
    note(f"done. To run it: {next_run(plan)}")
    note(f"to undo: headwater undo {checkpoint}")
    if as_json:
        json_line({"done": entry.change.change_id})
