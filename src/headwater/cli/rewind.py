"""``headwater rewind``: go back to an earlier batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.changing import StepProgress, confirmed
from headwater.cli.names import CheckpointName
from headwater.cli.output import json_line, note, say
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.timemachine.rewind import RewindPlan


@app.command(rich_help_panel=CHANGE)
def rewind(
    checkpoint: CheckpointName,
    to: Annotated[str | None, typer.Option(metavar="B", help="The last batch to keep: 41, HEAD~3.")] = None,
    redo: Annotated[int | None, typer.Option(metavar="B", min=0, help="The first batch to run again.")] = None,
    to_time: Annotated[str | None, typer.Option(metavar="T", help="Keep what was committed by this time.")] = None,
    replan: Annotated[
        bool, typer.Option("--replan", help="Plan the next batch from what the source has then.")
    ] = False,
    sink: Annotated[str | None, typer.Option(metavar="URI", help="The query's sink, if others started it.")] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Where to ask whether it can be read again: kafka://HOST:PORT/TOPIC."),
    ] = None,
    allow_missing_input: Annotated[
        bool, typer.Option("--allow-missing-input", help="Go on although the source has lost records.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask: the query is stopped.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Finish a change that was cut short.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Take back a change that was cut short.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The plan as one JSON object.")] = False,
) -> None:
    """Make an earlier batch the last one, so that the one after it runs next. Nothing is deleted: undo puts it back.

    Examples:
      headwater rewind visits-windows-counter --redo 5 --dry-run
      headwater rewind visits-windows-counter --redo 5
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.timemachine.executor import refuse_if_pending
    from headwater.timemachine.rewind import refuse_if_input_gone

    files = open_checkpoint(checkpoint)
    if resume and abort:
        raise UsageProblem("bad-option", "--resume and --abort are two ways out: take one")
    if resume or abort:
        _finish(files, abort=abort)
        return
    refuse_if_pending(files)
    last_kept = _last_kept(files, to, redo, to_time)
    plan = _plan(files, last_kept, replan=replan, sink=sink, source=source)
    _show(plan, as_json=as_json)
    if dry_run:
        return
    if not allow_missing_input:
        refuse_if_input_gone(plan)
    question = "Start the stream over?" if plan.to is None else f"Rewind to batch {plan.to}?"
    if not confirmed(question, yes=yes):
        return
    entry = plan.apply(progress=StepProgress())
    note(f"done: batch {plan.next_batch} runs next. To put it all back: headwater undo {checkpoint}")
    if as_json:
        json_line({"done": entry.change.change_id})


def _last_kept(files: FileTree, to: str | None, redo: int | None, to_time: str | None) -> int | None:
    from headwater.checkpoint import revisions
    from headwater.checkpoint.history import History

    if sum(given is not None for given in (to, redo, to_time)) != 1:
        raise UsageProblem(
            "bad-option",
            "say how far to rewind, in one way",
            remedy="--to B (the last batch kept), --redo B (the first to run again) or --to-time T",
        )
    if redo is not None:
        return redo - 1 if redo > 0 else None
    history = History(files)
    if to_time is not None:
        return revisions.batch_at(to_time.removeprefix("@"), history.committed_at_ms)
    assert to is not None
    return int(to) if to.isdigit() else revisions.resolve(to, history.batch_ids, history.committed_at_ms)


def _plan(files: FileTree, to: int | None, *, replan: bool, sink: str | None, source: str | None) -> RewindPlan:
    from headwater.checkpoint.record import sink_of
    from headwater.kafka.offsets import earliest_offsets
    from headwater.timemachine.rewind import plan_rewind

    return plan_rewind(
        files,
        to=to,
        replan=replan,
        sink=sink_of(files, sink),
        sink_uri=sink,
        source_uri=source,
        ask_kafka=earliest_offsets,
    )


def _show(plan: RewindPlan, *, as_json: bool) -> None:
    from headwater.views.plans import rewind_lines

    if as_json:
        json_line(plan.as_dict())
        return
    for line in rewind_lines(plan):
        say(line)


def _finish(files: FileTree, *, abort: bool) -> None:
    from headwater.timemachine import executor

    if abort:
        change = executor.abort(files)
        note(f"taken back: the checkpoint is as it was before the {change.verb}")
    else:
        entry = executor.resume(files, progress=StepProgress())
        note(f"done: {entry.change.about}")
