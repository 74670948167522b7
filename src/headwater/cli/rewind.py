"""``headwater rewind``: rewind a checkpoint to an earlier batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, StepProgress, Yes, given_options
from headwater.cli.output import json_line, note
from headwater.cli.table_options import Engine, KeepForeign, open_recorded_table, table_engine
from headwater.core.errors import UsageProblem
from headwater.core.text import count

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.checkpoint.restore_points import RestorePoint
    from headwater.timemachine.rewind import RewindPlan, WithEngine


@app.command(rich_help_panel=CHANGE)
def rewind(
    checkpoint: CheckpointName,
    to: Annotated[
        str | None, typer.Option(metavar="B", help="Last batch to keep: 41, HEAD~3 or the name of a restore point.")
    ] = None,
    redo: Annotated[int | None, typer.Option(metavar="B", min=0, help="First batch to run again.")] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep the batches that were committed by this time (UTC).")
    ] = None,
    replan: Annotated[
        bool,
        typer.Option("--replan", help="Let Spark plan the next batch again instead of using its recorded offsets."),
    ] = False,
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Sink of the query, if headwater run has not recorded it: files:DIR, delta:PATH and iceberg:TABLE are "
            "rewound too.",
        ),
    ] = None,
    keep_foreign: KeepForeign = False,
    engine: Engine = "auto",
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]URI",
            help="Kafka source in which to look for the records: kafka://HOST:PORT/TOPIC. With NAME=, only for the "
            "source of that name or number. Repeatable.",
        ),
    ] = None,
    allow_missing_input: Annotated[
        bool, typer.Option("--allow-missing-input", help="Rewind even if the source has lost records.")
    ] = False,
    cascade: Annotated[
        bool,
        typer.Option("--cascade", help="Also rewind the streams that have read what the undone batches wrote."),
    ] = False,
    tables: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Rewind only these tables of a pipeline and, with --cascade, those that read them."
        ),
    ] = None,
    warehouse: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with the tables of a pipeline: its spark.sql.warehouse.dir."),
    ] = None,
    reader: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CKPT",
            help="With --cascade, a stream to consider besides those in the same folder and in .headwater/checkpoints. "
            "Repeatable.",
        ),
    ] = None,
    allow_duplicates: Annotated[
        bool,
        typer.Option("--allow-duplicates", help="Cascade even if readers of a Kafka topic see undone records again."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    resume: Annotated[bool, typer.Option("--resume", help="Finish an interrupted change.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Roll back an interrupted change.")] = False,
    as_json: PlanJson = False,
) -> None:
    """Rewind a checkpoint to an earlier batch, so that the batches after it run again.

    Prints a plan and asks for confirmation before it moves any file. Nothing is deleted: files are set aside, and
    headwater undo moves them back. Name the last batch to keep (--to, --to-time) or the first to run again (--redo).

    A Delta or Iceberg table that the query writes to returns to the same batch, by a commit that writes no data files.

    With --cascade, streams that read the files, the Delta table or the topic that this one writes are rewound with it, so
    that nothing of the undone output remains in them. A Kafka topic keeps the undone records: rewound readers read them
    again, which needs --allow-duplicates. One undo reverts the whole cascade.

    CKPT may be a Spark declarative pipeline: its storage folder, or its spark-pipeline.yml. With --to-time, all of its
    flows and their tables, or only those of --tables, return to that time as one change. PIPELINE:FLOW names a single
    flow.

    Examples:
      headwater rewind visits-windows-counter --redo 5 --dry-run
      headwater rewind visits-windows-counter --redo 5
      headwater rewind visits-windows-counter --to before-upgrade
      headwater rewind retail-sales-bronze --to 41 --cascade
      headwater rewind spark-pipeline.yml --to-time 10:30 --tables sales --cascade
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.cli.checkpoint_options import confirm, open_to_change, print_plan
    from headwater.cli.pipeline_rewind import flow_to_finish, named_pipeline, rewind_pipeline
    from headwater.timemachine.rewind_target import plan_rewind_to
    from headwater.views.plans import rewind_text

    if resume and abort:
        raise UsageProblem(
            "bad-option",
            "--resume and --abort cannot be combined",
            remedy="--resume to finish the change, or --abort to roll it back",
        )
    if resume or abort:
        _refuse_with_interrupted(
            "--resume" if resume else "--abort",
            {
                "--to": to,
                "--redo": redo,
                "--to-time": to_time,
                "--replan": replan,
                "--sink": sink,
                "--keep-foreign": keep_foreign,
                "--source": source,
                "--allow-missing-input": allow_missing_input,
                "--cascade": cascade,
                "--tables": tables,
                "--warehouse": warehouse,
                "--reader": reader,
                "--allow-duplicates": allow_duplicates,
                "--dry-run": dry_run,
            },
        )
    pipeline = named_pipeline(checkpoint)
    if resume or abort:
        _end_interrupted(flow_to_finish(checkpoint, pipeline) if pipeline else open_checkpoint(checkpoint), abort=abort)
        return
    if pipeline is not None:
        _refuse_for_pipeline(
            {
                "--to": to,
                "--redo": redo,
                "--sink": sink,
                "--source": source,
                "--reader": reader,
                "--replan": replan,
                "--allow-duplicates": allow_duplicates,
            }
        )
        rewind_pipeline(
            checkpoint,
            pipeline,
            to_time,
            tables=tables,
            warehouse=warehouse,
            cascade=cascade,
            keep_foreign=keep_foreign,
            engine=engine,
            allow_missing_input=allow_missing_input,
            dry_run=dry_run,
            yes=yes,
            as_json=as_json,
        )
        return
    if tables or warehouse:
        raise UsageProblem(
            "bad-option",
            "--tables and --warehouse are for a pipeline, not for one checkpoint",
            remedy="omit them, or name the pipeline: its storage folder or its spark-pipeline.yml",
        )
    if (reader or allow_duplicates) and not cascade:
        raise UsageProblem(
            "bad-option",
            "--reader and --allow-duplicates have no effect without --cascade",
            remedy="add --cascade, or omit them",
        )
    files = open_to_change(checkpoint)
    if cascade:
        from headwater.timemachine.move import absolute

        files = absolute(files)
    target = _target(files, to, redo, to_time)
    plan = plan_rewind_to(
        files,
        target,
        replan=replan,
        sink=sink,
        sources=source or (),
        keep_foreign=keep_foreign,
        with_engine=table_engine(engine),
    )
    if cascade:
        _rewind_together(
            checkpoint,
            plan,
            reader or (),
            table_engine(engine),
            allow_missing_input=allow_missing_input,
            allow_duplicates=allow_duplicates,
            dry_run=dry_run,
            yes=yes,
            as_json=as_json,
        )
        return
    print_plan(plan.as_dict(), rewind_text(plan).lines(), as_json=as_json)
    if dry_run:
        return
    if not allow_missing_input:
        plan.refuse_missing_input()
    question = "Restart the stream from scratch?" if plan.to is None else f"Rewind to {_named(target)}?"
    if not confirm(question, yes=yes):
        return
    entry = plan.apply(StepProgress(), allow_missing_input=allow_missing_input)
    note(f"done: batch {plan.next_batch} runs next. To undo: headwater undo {checkpoint}")
    if as_json:
        json_line({"done": entry.change.change_id})


def _refuse_with_interrupted(option: str, others: Mapping[str, object]) -> None:
    """Raise for options of a new rewind: an interrupted change is finished or rolled back as it was planned."""
    if given := given_options(others):
        raise UsageProblem(
            "bad-option",
            f"{given[0]} cannot be combined with {option}, which ends the interrupted change as it was planned",
            remedy=f"omit {given[0]}",
        )


def _refuse_for_pipeline(options: Mapping[str, object]) -> None:
    if given := given_options(options):
        raise UsageProblem(
            "bad-option",
            f"{given[0]} works on one flow, not on a pipeline",
            remedy="--to-time TIME for the pipeline, or PIPELINE:FLOW for one flow",
        )


def _rewind_together(
    checkpoint: str,
    first: RewindPlan,
    readers: Sequence[str],
    engine: WithEngine,
    *,
    allow_missing_input: bool,
    allow_duplicates: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.kafka.offsets import offsets_at
    from headwater.timemachine.cascade import plan_cascade
    from headwater.timemachine.move import absolute
    from headwater.views.cascade_text import cascade_lines

    named = [absolute(open_checkpoint(name)) for name in readers]
    plan = plan_cascade(first, named=named, offsets_at=offsets_at, with_engine=engine)
    print_plan(plan.as_dict(), cascade_lines(plan), as_json=as_json)
    if dry_run:
        return
    if not allow_missing_input:
        plan.refuse_missing_input()
    if not allow_duplicates:
        plan.refuse_again()
    if not confirm(f"Rewind {count(len(plan.plans), 'stream')}?", yes=yes):
        return
    plan.apply(StepProgress(), allow_missing_input=allow_missing_input)
    note(f"done: {count(len(plan.plans), 'stream')} rewound. To undo all of it: headwater undo {checkpoint}")
    if as_json:
        json_line({"done": first.change.change_id})


def _named(target: int | RestorePoint | None) -> str:
    from headwater.checkpoint.restore_points import RestorePoint

    if isinstance(target, RestorePoint):
        return f"the restore point {target.name}, batch {target.batch_id}"
    return f"batch {target}"


def _target(files: FileTree, to: str | None, redo: int | None, to_time: str | None) -> int | RestorePoint | None:
    """Return the last batch to keep, or the restore point that has kept it; None for no batch."""
    from headwater.checkpoint import revisions
    from headwater.checkpoint.history import History
    from headwater.timemachine.rewind_target import rewind_target

    if sum(given is not None for given in (to, redo, to_time)) != 1:
        raise UsageProblem(
            "bad-option",
            "exactly one of --to, --redo and --to-time is required",
            remedy="--to B (the last batch to keep), --redo B (the first to run again) or --to-time TIME",
        )
    if redo is not None:
        return redo - 1 if redo > 0 else None
    if to_time is not None:
        return revisions.batch_at(to_time.removeprefix("@"), History(files).committed_at_ms)
    return rewind_target(files, to)


def _end_interrupted(files: FileTree, *, abort: bool) -> None:
    from headwater.timemachine import interrupted
    from headwater.timemachine.joint_change import finish_cascade
    from headwater.timemachine.journal import read_cascade

    cascade = read_cascade(files)
    if cascade is not None:
        changed = finish_cascade(files, cascade, open_table=open_recorded_table, abort=abort)
        note(
            f"rolled back: {changed.about}"
            if abort
            else f"done: {changed.about}, with the streams that read its output"
        )
    elif abort:
        change = interrupted.abort(files, open_table=open_recorded_table)
        note(f"rolled back: the checkpoint is as it was before the {change.verb}")
    else:
        entry = interrupted.resume(files, open_table=open_recorded_table, progress=StepProgress())
        note(f"done: {entry.change.about}")
