"""``headwater edit``: change the state of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, StepProgress, Yes
from headwater.cli.output import json_line, note, table
from headwater.cli.state_source import OPERATOR, STORE, VAR, parse_fields, parse_key
from headwater.core.ids import StoreRef

if TYPE_CHECKING:
    from headwater.timemachine.edit_plan import EditPlan

REASON = typer.Option(
    metavar="TEXT",
    help="Reason for the change; recorded in the journal with the user and the time, and shown by headwater log.",
)
SINK = typer.Option(metavar="URI", help="File sink of the query, if headwater run has not recorded it.")


@app.command(rich_help_panel=CHANGE)
def edit(
    checkpoint: CheckpointName,
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=VALUE", help="Rows with this field in their key. Repeatable.")
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Rows that meet this condition.")] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Set a field of the value; JSON if nested. Repeatable."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the rows.")] = False,
    insert: Annotated[bool, typer.Option("--insert", help="Add the row if its key does not exist.")] = False,
    erase: Annotated[
        bool,
        typer.Option(
            "--erase",
            help="With --delete: remove the rows also from retained batches, restore points and files set aside. Cannot be "
            "undone.",
        ),
    ] = False,
    sql: Annotated[
        str | None, typer.Option(metavar="SQL", help="UPDATE, DELETE or INSERT to run on the table state.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Rows to put: a Parquet, Arrow, CSV or JSON Lines file."),
    ] = None,
    reason: Annotated[str | None, REASON] = None,
    sink: Annotated[str | None, SINK] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: PlanJson = False,
) -> None:
    """Change the state after the last batch.

    Adds a batch that reads no input and writes the changed rows, so that the query continues with them. Prints a plan
    with some rows before and after, and asks for confirmation. Can be undone and rewound. Does not start Spark.

    Choose rows with --key and --where, and change them with --set or remove them with --delete; or use --sql, or --from.
    Columns have the names that headwater state shows. In a join or custom state, --key with --delete removes everything
    that belongs to the key, including timers.

    With --erase, deleted rows are also removed from everything else that the checkpoint contains. Its state is written
    again without them, and the files of earlier batches, restore points and earlier changes are deleted.

    Examples:
      headwater edit running-totals --key user=42 --set total=10 --reason "double-counted refund"
      headwater edit browser-stats-stateful --delete --where "browser = 'Bot'" --dry-run
      headwater edit running-totals --delete --erase --key user=42 --reason "request 17"
    """
    from headwater.cli.checkpoint_options import open_to_change
    from headwater.views.state_edits import plan_edit
    from headwater.views.state_files import read_table

    plan = plan_edit(
        open_to_change(checkpoint),
        StoreRef(operator, store, var),
        key=parse_key(key) if key else None,
        where=where,
        fields=parse_fields(fields, "bad-value", "--set count=10") if fields else None,
        remove=delete,
        insert=insert,
        sql=sql,
        rows=None if source is None else read_table(source),
        rows_from=source or "",
        reason=reason,
        sink=sink,
        erase=erase,
    )
    question = "Erase the rows for good?" if erase else "Edit the state?"
    carry_out(plan, checkpoint, question, dry_run=dry_run, yes=yes, as_json=as_json)


def carry_out(plan: EditPlan, checkpoint: str, question: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Show a plan, ask for confirmation, and apply it."""
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.views.edit_sample import edit_as_dict, edit_cells
    from headwater.views.plans import edit_text

    print_plan(edit_as_dict(plan), edit_text(plan).lines(), as_json=as_json)
    if not as_json:
        cells = edit_cells(plan)
        table(cells.columns, cells.rows)
        if cells.omitted:
            note(f"and {cells.omitted:,} more")
    if dry_run or not confirm(question, yes=yes):
        return
    entry = plan.apply(StepProgress())
    if plan.erasure is None:
        note(f"done: batch {plan.batch_id} was added. To undo: headwater undo {checkpoint}")
    else:
        note(f"done: batch {plan.batch_id} was added, and older files were deleted. This cannot be undone")
    if as_json:
        json_line({"done": entry.change.change_id, "batch_id": plan.batch_id})
