"""``headwater undo``: undo the last change to a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, Yes
from headwater.cli.output import note
from headwater.cli.table_options import Engine, KeepForeign, table_engine


@app.command(rich_help_panel=CHANGE)
def undo(
    checkpoint: CheckpointName,
    drop_newer: Annotated[
        bool, typer.Option("--drop-newer", help="Discard the batches that were committed since.")
    ] = False,
    sink: Annotated[
        str | None, typer.Option(metavar="URI", help="Sink of the query, if it was moved since the change.")
    ] = None,
    keep_foreign: KeepForeign = False,
    engine: Engine = "auto",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: PlanJson = False,
) -> None:
    """Undo the last rewind, edit, import, repair or repartition.

    Moves the files that were set aside back to where they were. A Delta table that was rewound gets its rows back by a
    further commit. Repeat the command to undo earlier changes.

    Example:
      headwater undo visits-windows-counter
    """
    from headwater.cli.checkpoint_options import StepProgress, confirm, open_to_change, print_plan
    from headwater.timemachine.undo import plan_query_undo
    from headwater.views.plans import undo_text

    files = open_to_change(checkpoint)
    plan = plan_query_undo(
        files, sink=sink, drop_newer=drop_newer, keep_foreign=keep_foreign, with_engine=table_engine(engine)
    )
    print_plan(plan.as_dict(), undo_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm("Undo it?", yes=yes):
        return
    plan.apply(progress=StepProgress())
    note(f"done: the {plan.undoes.change.verb} was undone")
