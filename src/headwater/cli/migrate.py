"""``headwater migrate``: bring the state of a checkpoint to what changed code asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, StepProgress, Yes, given_options
from headwater.cli.edit import REASON
from headwater.cli.job_options import Conf, ModeName, SinkUri, SourceUris, job_names
from headwater.cli.output import json_line, note, say, table
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.migration.migration_plan import MigrationPlan
    from headwater.timemachine.journal import Entry


@app.command(rich_help_panel=CHANGE)
def migrate(
    checkpoint: CheckpointName,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            help="The changed job: a gallery name, module:NAME or path/to/file.py:NAME.",
            autocompletion=job_names,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Keep the state in another store: hdfs, rocksdb or rocksdb-changelog.",
            autocompletion=lambda: ["hdfs", "rocksdb", "rocksdb-changelog"],
        ),
    ] = None,
    checkpoint_format: Annotated[
        int | None,
        typer.Option(metavar="2", help="Write the state in checkpoint format 2, which needs RocksDB."),
    ] = None,
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
    merge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=SQL",
            help="How to merge rows that end up with the same key: sum, min, max or an SQL aggregate. Repeatable.",
        ),
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
        bool, typer.Option("--accept-change", help="Migrate even if the code also changes the meaning of the state.")
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
    """Convert the state to what changed code expects, or to another state store, so that the job can resume with it.

    Fields are matched by name, and those of an aggregation by its recorded expressions. Added aggregates begin with Spark's
    own initial value and other added fields with null, unless --set gives an SQL expression. Dropped fields are
    removed, and wider types are cast. A changed key needs --keys, and rows that end up with the same key are merged as
    --merge says.

    Sources and stateful operators may be added, removed and moved. A new source begins where its options say, and a new
    operator begins without state; the other sources keep their positions, and the other operators their state. Sources
    are matched by name or by what they read, or by --source-map.

    Adds a batch that reads no input. Prints a plan that shows some rows before and after the change, and how the
    continued stream will differ from a run of the new code over all records. Then asks for confirmation. Can be undone
    and rewound.

    Spark plans the job on this machine. Its source and sink do not have to be reachable.

    With --store or --checkpoint-format instead of --job, the same rows are kept in another state store or checkpoint
    format. This needs neither Spark nor Java.

    Examples:
      headwater migrate visits --job jobs.py:VISITS --dry-run
      headwater migrate visits --job jobs.py:VISITS --set max="window.start"
      headwater migrate visits --job jobs.py:VISITS --keys "window, user, 'web'"
      headwater migrate visits --job jobs.py:VISITS --keys "window" --merge count=sum --merge max=max
      headwater migrate visits --store rocksdb-changelog
      headwater migrate visits --checkpoint-format 2
      headwater migrate visits --job jobs.py:VISITS --source-map web=visits
    """
    from headwater.cli.checkpoint_options import open_to_change
    from headwater.cli.job_options import parse_pairs, select_job

    if job is None:
        for_job = given_options(
            {
                "--set": fields,
                "--keys": keys,
                "--merge": merge,
                "--source-map": source_map,
                "--accept-change": accept_change,
                "--mode": mode,
                "--source": source,
                "--setting": settings,
                "--conf": conf,
            }
        )
        if for_job and (store is not None or checkpoint_format is not None):
            raise UsageProblem(
                "bad-option",
                f"{for_job[0]} has no effect without --job: another state store keeps the same rows",
                remedy=f"omit {for_job[0]}, or migrate to changed code in a second command: --job JOB",
            )
        _migrate_store(checkpoint, store, checkpoint_format, reason, sink, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    if store is not None or checkpoint_format is not None:
        raise UsageProblem(
            "bad-option",
            "the code and the state store cannot change in one migration",
            remedy="run headwater migrate twice: with --store or --checkpoint-format, and with --job",
        )
    chosen = select_job(job, source=source, sink=sink, mode=mode, settings=settings)
    wanted, given = parse_pairs(fields, "--set"), parse_pairs(conf, "--conf")
    files = open_to_change(checkpoint)

    from headwater.spark.migrate import MigrationRequest, migrate_in_program

    request = MigrationRequest(
        wanted,
        keys,
        parse_pairs(merge, "--merge"),
        parse_pairs(source_map, "--source-map"),
        accept_change,
        reason,
        sink,
        reference=job,
    )
    plan = migrate_in_program(chosen, files, request, conf=given)
    _carry_out(plan, checkpoint, dry_run=dry_run, yes=yes, as_json=as_json)


def _migrate_store(
    checkpoint: str,
    store: str | None,
    checkpoint_format: int | None,
    reason: str | None,
    sink: str | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Plan and apply a migration to another state store."""
    from headwater.cli.checkpoint_options import confirm, open_to_change, print_plan
    from headwater.migration.store_migration import plan_store_migration
    from headwater.views.store_migration import store_migration_text

    if store is None and checkpoint_format is None:
        raise UsageProblem(
            "bad-option",
            "nothing to migrate to",
            remedy="--job JOB for changed code, --store STORE or --checkpoint-format 2 for another state store",
        )
    plan = plan_store_migration(
        open_to_change(checkpoint), store=store, checkpoint_format=checkpoint_format, reason=reason, sink=sink
    )
    print_plan(plan.as_dict(), store_migration_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm("Migrate the state?", yes=yes):
        return
    _say_done(plan.apply(StepProgress()), plan.batch_id, checkpoint, as_json=as_json)


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
    _say_done(plan.apply(StepProgress()), plan.batch_id, checkpoint, as_json=as_json)


def _say_done(entry: Entry, batch: int, checkpoint: str, *, as_json: bool) -> None:
    note(f"done: batch {batch} was added. To undo: headwater undo {checkpoint}")
    if as_json:
        json_line({"done": entry.change.change_id, "batch_id": batch})
