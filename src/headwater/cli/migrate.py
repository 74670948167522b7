"""``headwater migrate``: bring the state of a checkpoint to what changed code asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, StepProgress, Yes
from headwater.cli.edit import REASON
from headwater.cli.job_options import Conf, ModeName, SinkUri, SourceUris, job_names
from headwater.cli.output import json_line, note, say, table

if TYPE_CHECKING:
    from headwater.migration.migration_plan import MigrationPlan


@app.command(rich_help_panel=CHANGE)
def migrate(
    checkpoint: CheckpointName,
    job: Annotated[
        str,
        typer.Option(
            metavar="JOB",
            help="The changed job: a gallery name, module:NAME or path/to/file.py:NAME.",
            autocompletion=job_names,
        ),
    ],
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=SQL", help="A field of the new values, from the old key and value. Repeatable."
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="The fields of a changed key, in their order, from the old key and value."),
    ] = None,
    source_map: Annotated[
        list[str] | None,
        typer.Option(
            "--source-map",
            metavar="NEW=OLD",
            help="The old name or place of a source that stays, if it is not found by its name or by what it reads. Repeatable.",
        ),
    ] = None,
    accept_change: Annotated[
        bool, typer.Option("--accept-change", help="Migrate although the code also gives the state another meaning.")
    ] = False,
    reason: Annotated[str | None, REASON] = None,
    mode: ModeName = None,
    source: SourceUris = None,
    sink: SinkUri = None,
    settings: Annotated[
        list[str] | None, typer.Option("--setting", metavar="NAME=VALUE", help="Parameter of the job. Repeatable.")
    ] = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: PlanJson = False,
) -> None:
    """Bring the state to what changed code asks for, so that the job resumes with it.

    Fields are matched by name, and those of an aggregation by its recorded expressions. Added aggregates begin with Spark's
    own initial value, other added fields with null, or both with the SQL that --set gives. Dropped fields go, and wider
    types are cast. A changed key needs --keys, and rows that would fall on one key are refused.

    Sources and stateful operators may be added, removed and moved. A new source begins where its options say, and a new
    operator without state; the others keep theirs. Sources are matched by name or by what they read, or by --source-map.

    Adds a batch that reads no input. Prints a plan with some rows before and after, and what the continued stream will
    differ in, and asks for confirmation. Can be undone and rewound.

    Spark plans the job on this machine. Its source and sink do not have to be reachable.

    Examples:
      headwater migrate visits --job jobs.py:VISITS --dry-run
      headwater migrate visits --job jobs.py:VISITS --set max="window.start"
      headwater migrate visits --job jobs.py:VISITS --keys "window, user, 'web'"
      headwater migrate visits --job jobs.py:VISITS --source-map web=visits
    """
    from headwater.cli.checkpoint_options import open_to_change
    from headwater.cli.job_options import parse_pairs, select_job

    chosen = select_job(job, source=source, sink=sink, mode=mode, settings=settings)
    wanted, given = parse_pairs(fields, "--set"), parse_pairs(conf, "--conf")
    files = open_to_change(checkpoint)

    from headwater.spark.migrate import migrate_in_program

    plan = migrate_in_program(
        chosen,
        files,
        fields=wanted,
        keys=keys,
        source_map=parse_pairs(source_map, "--source-map"),
        accept_change=accept_change,
        reason=reason,
        sink=sink,
        reference=job,
        conf=given,
    )
    _carry_out(plan, checkpoint, dry_run=dry_run, yes=yes, as_json=as_json)


def _carry_out(plan: MigrationPlan, checkpoint: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Show a plan, ask for confirmation, and apply it."""
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.views.migration import migration_as_dict, migration_text, sample_cells

    print_plan(migration_as_dict(plan), migration_text(plan).lines(), as_json=as_json)
    for store in () if as_json else plan.stores:
        cells = sample_cells(store)
        if len(plan.stores) > 1:
            say(store.label)
        table(cells.columns, cells.rows)
        if cells.omitted:
            note(f"and {cells.omitted:,} more")
    if dry_run or not confirm("Migrate the state?", yes=yes):
        return
    entry = plan.apply(StepProgress())
    note(f"done: batch {plan.batch_id} was added. To undo: headwater undo {checkpoint}")
    if as_json:
        json_line({"done": entry.change.change_id, "batch_id": plan.batch_id})
