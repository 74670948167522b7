"""``headwater promote``: a fork takes the place of the stream that it was forked from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import DryRun, PlanJson, checkpoint_names
from headwater.cli.output import StatusLine, json_line, note
from headwater.core.errors import CheckpointBusy

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.timemachine.promote import PromotePlan

POLL_SECONDS = 1.0


@app.command(rich_help_panel=CHANGE)
def promote(
    fork: Annotated[
        str, typer.Argument(metavar="FORK", help="Checkpoint of the fork.", autocompletion=checkpoint_names)
    ],
    lag: Annotated[
        int, typer.Option(min=0, metavar="N", help="Records, files or versions that the fork may be behind.")
    ] = 0,
    original: Annotated[
        str | None,
        typer.Option(metavar="CKPT", help="Stream that the fork replaces. Default: the one that it was forked from."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Wait at most this long for the fork to catch up."),
    ] = None,
    keep_sink: Annotated[
        bool, typer.Option("--keep-sink", help="Let the fork keep its own sink. It then keeps running.")
    ] = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation. Running jobs are stopped.")] = False,
    as_json: PlanJson = False,
) -> None:
    """Promote a fork: it takes the place of the stream that it was forked from.

    Waits until the fork has caught up, compares what both have written for the same input where the sinks can be read, and
    shows the differences. Once you confirm, the original stops after its current batch, and its name and path refer to the
    fork. The original keeps its checkpoint, and headwater undo reverts the promotion.

    With file sinks and Delta tables, both streams stop, and the sink of the original gets the rows of the fork instead of
    those that the original has written since the fork. Start the fork again with that sink; the command is shown. With
    other sinks, or with --keep-sink, the fork keeps running and keeps its own sink.

    Examples:
      headwater promote visits-v2 --dry-run
      headwater promote visits-v2 --lag 1000 --wait 600
      headwater promote visits-v2 --keep-sink
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.cli.checkpoint_options import confirm, print_plan
    from headwater.timemachine.promote import plan_promotion
    from headwater.views.promote_text import compared, difference_lines, promote_dict, promote_text, start_command

    files = open_checkpoint(fork, follow=False)
    other = open_checkpoint(original, follow=False) if original else None
    if not dry_run:
        _wait_until_caught_up(files, other, lag, wait)
    plan = plan_promotion(files, other, lag=lag, keep_sink=keep_sink)
    found = compared(plan)
    lines = [*promote_text(plan, found).lines(), *difference_lines(found)]
    print_plan(promote_dict(plan, found), lines, as_json=as_json)
    if dry_run:
        return
    plan.refuse_behind()
    if not confirm("Promote it?", yes=yes):
        return
    if plan.takeover is not None:
        _stop(plan.fork)
    _stop(plan.original)
    if plan.takeover is not None:
        # Both may have run further batches since.
        plan = plan_promotion(files, other, lag=lag, keep_sink=keep_sink, compare=False)
    entry = plan.apply()
    note(
        f"done: {plan.original.location} now refers to {plan.fork.location}. To undo: headwater undo {plan.original.location}"
    )
    if plan.takeover is not None:
        note(f"start it in the sink of the original: {start_command(plan)}")
    if as_json:
        json_line({"done": entry.change.change_id})


def _wait_until_caught_up(fork: FileTree, original: FileTree | None, lag: int, wait: float | None) -> None:
    """Wait while the fork runs and is behind."""
    from headwater.timemachine.promote import plan_promotion

    line, started = StatusLine(), time.monotonic()
    while True:
        plan: PromotePlan = plan_promotion(fork, original, lag=lag, compare=False, keep_sink=True)
        seconds = time.monotonic() - started
        if plan.caught_up or not plan.runs[1] or (wait is not None and seconds >= wait):
            line.clear()
            plan.refuse_behind()
            return
        line.show(f"waiting for the fork: it has not read {plan.behind} yet, {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def _stop(files: FileTree) -> None:
    """Stop the job that runs on a checkpoint after its current batch, if there is one."""
    from headwater.checkpoint.stop_request import request_stop, wait_until_stopped

    made = request_stop(files, now=False)
    if made is None:
        return
    request, lease = made
    line = StatusLine()
    line.show(f"waiting for {lease.holder} (process {lease.process}) to finish its batch")
    is_stopped = wait_until_stopped(files, request, lease)
    line.clear()
    if not is_stopped:
        raise CheckpointBusy("still-running", f"{lease.holder} has not stopped", evidence={"process": lease.process})
    note(f"stopped {lease.holder}")
