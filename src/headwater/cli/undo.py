"""``headwater undo``: undo the last change to a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, Yes
from headwater.cli.output import note
from headwater.cli.table_options import Engine, KeepForeign, table_engine
from headwater.core.text import count

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.checkpoint.moved import MovedTo


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
    """Undo the last rewind, edit, import, migration, move, promotion, repair or repartition.

    Moves the files that were set aside back to where they were. A table that was rewound gets its rows back by a
    further commit. Streams that were rewound together are undone together, and so are the flows of a pipeline: name its
    storage folder or its spark-pipeline.yml. To undo a move or a promotion, name the old
    location. Repeat the command to undo earlier changes.

    Example:
      headwater undo visits-windows-counter
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.checkpoint.moved import read_pointer
    from headwater.cli.checkpoint_options import StepProgress, confirm, open_to_change, print_plan
    from headwater.cli.pipeline_rewind import flow_to_undo, named_pipeline
    from headwater.timemachine.joint_change import plan_cascade_undo
    from headwater.timemachine.move import absolute
    from headwater.timemachine.undo import UndoPlan, plan_query_undo
    from headwater.views.cascade_text import cascade_undo_lines
    from headwater.views.plans import undo_text

    pipeline = named_pipeline(checkpoint)
    if pipeline is not None:
        checkpoint = flow_to_undo(checkpoint, pipeline).location
    named = open_checkpoint(checkpoint, follow=False)
    pointer = read_pointer(named)
    if pointer is not None and pointer.promoted:
        _undo_promotion(named, pointer, keep_foreign, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    if pointer is not None:
        _undo_move(named, pointer, drop_newer, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    files = absolute(open_to_change(checkpoint))

    def plan_one(one: FileTree) -> UndoPlan:
        return plan_query_undo(
            one, drop_newer=drop_newer, keep_foreign=keep_foreign, with_engine=table_engine(engine), in_cascade=True
        )

    together = plan_cascade_undo(files, plan_one)
    if together is not None:
        print_plan(together.as_dict(), cascade_undo_lines(together), as_json=as_json)
        if not dry_run and confirm("Undo it?", yes=yes):
            together.apply(progress=StepProgress())
            note(f"done: the rewind of {count(len(together.plans), 'stream')} was undone")
        return
    plan = plan_query_undo(
        files, sink=sink, drop_newer=drop_newer, keep_foreign=keep_foreign, with_engine=table_engine(engine)
    )
    print_plan(plan.as_dict(), undo_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm("Undo it?", yes=yes):
        return
    plan.apply(progress=StepProgress())
    note(f"done: the {plan.undoes.change.verb} was undone")


def _undo_move(files: FileTree, pointer: MovedTo, drop_newer: bool, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.timemachine.move_undo import plan_move_undo
    from headwater.views.move_text import move_undo_text

    plan = plan_move_undo(files, pointer, drop_newer=drop_newer)
    print_plan(plan.as_dict(), move_undo_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm("Undo it?", yes=yes):
        return
    plan.apply()
    note(f"done: the checkpoint is used again at {files.location}")


def _undo_promotion(
    original: FileTree, pointer: MovedTo, keep_foreign: bool, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.timemachine.promote import plan_promotion_undo
    from headwater.views.promote_text import promote_undo_text

    plan = plan_promotion_undo(original, pointer, keep_foreign=keep_foreign)
    print_plan(plan.as_dict(), promote_undo_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm("Undo it?", yes=yes):
        return
    plan.apply()
    note(f"done: {original.location} can be started again, and resumes where it stopped")
