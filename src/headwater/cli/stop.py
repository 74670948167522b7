"""``headwater stop``: ask a running job to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import RUN, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import StatusLine, note, say
from headwater.core.errors import CheckpointBusy

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.checkpoint.lease import Lease


@app.command(rich_help_panel=RUN)
def stop(
    checkpoint: CheckpointName,
    wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Wait at most this long; 0 to return at once. Default: no limit."),
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Interrupt the current batch, which runs again at the next start.")
    ] = False,
) -> None:
    """Stop the job that runs on a checkpoint, after its current batch.

    Works from any machine that can access the checkpoint: the request is a file next to its lease, and the process
    that holds the lease answers within seconds. This includes programs with headwater.attach. Does not start Spark.

    Examples:
      headwater stop browser-stats-stateful
      headwater stop browser-stats-stateful --now
      headwater stop s3a://bucket/checkpoints/visits --wait 60
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.checkpoint.stop_request import request_stop, wait_until_stopped

    files = open_checkpoint(checkpoint)
    made = request_stop(files, now=now)
    if made is None:
        say(f"nothing is running on {files.location}")
        return
    request, lease = made
    if wait == 0:
        say(f"requested: {lease.holder} (process {lease.process}) stops {_when(now=now)}")
        return
    line = StatusLine()

    def show(holder: Lease, seconds: float) -> None:
        line.show(f"waiting for {holder.holder} (process {holder.process}) to stop {_when(now=now)}: {seconds:.0f} s")

    try:
        is_stopped = wait_until_stopped(files, request, lease, timeout=wait, on_wait=show)
    except KeyboardInterrupt:
        line.clear()
        note(f"no longer waiting; {lease.holder} still stops {_when(now=now)}")
        raise typer.Exit(130) from None
    line.clear()
    if not is_stopped:
        raise CheckpointBusy(
            "still-running",
            f"{lease.holder} is still finishing its batch after {wait:g} s",
            evidence={"process": lease.process, "checkpoint": files.location},
            remedy=f"headwater stop {checkpoint}   (keeps waiting), or add --now to interrupt the batch",
        )
    say(f"stopped {lease.holder}{_last_batch(files)}")


def _when(*, now: bool) -> str:
    return "immediately" if now else "after the current batch"


def _last_batch(files: FileTree) -> str:
    from headwater.checkpoint.history import History

    last = History(files).last_committed
    return "" if last is None else f" after batch {last}"
