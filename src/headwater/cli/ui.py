"""``headwater ui``: the live page of one or more checkpoints."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app import INSPECT, app
from headwater.cli.checkpoint_options import checkpoint_names
from headwater.cli.child_processes import run_command
from headwater.cli.output import note, say
from headwater.core.errors import HeadwaterError, JobFailed

if TYPE_CHECKING:
    from headwater.web.server import ServedCheckpoint

LATE_TIMEOUT_SECONDS = 180.0
VIEW_TIMEOUT_SECONDS = 60.0


@app.command(rich_help_panel=INSPECT)
def ui(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CKPT...",
            help="Checkpoints: folders, object-store URLs or job names.",
            autocompletion=checkpoint_names,
        ),
    ],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; default: 8765, or a free port.", show_default=False)
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any address other than loopback exposes the page to the network.")
    ] = "127.0.0.1",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Allow rewind and undo from the page, which is otherwise read-only.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Start even if a checkpoint does not exist yet.")] = False,
) -> None:
    """Serve a live page for one or more checkpoints, until Ctrl-C.

    The page shows the batches, the watermark, the state as of any batch, what changed, and the history of a key. Its URL
    contains a token, without which access is denied.

    Example:
      headwater ui browser-stats-stateful
    """
    from headwater.checkpoint.locate import open_checkpoint

    if not wait:
        for checkpoint in checkpoints:
            open_checkpoint(checkpoint)

    from headwater.web.server import LOOPBACK, PageServer

    server = PageServer(
        [_served(checkpoint) for checkpoint in checkpoints],
        host=host,
        port=port,
        allow_changes=allow_changes,
        find_records=find_dropped_records,
        find_view_rows=find_view_rows,
    )
    if host not in {LOOPBACK, "localhost", "::1"}:
        note(f"warning: the page can be reached from other machines on {host}; anyone who has the URL can open it")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    say(server.url)
    stop.wait()
    server.stop()


def _served(checkpoint: str) -> ServedCheckpoint:
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.web.server import ServedCheckpoint

    name = Path(checkpoint.rstrip("/")).name or checkpoint
    return ServedCheckpoint(name, lambda: open_checkpoint(checkpoint))


def find_dropped_records(location: str, batch: int) -> list[dict[str, Any]]:
    """Return what ``headwater late`` finds for a batch. Runs it in a process of its own, because it starts Spark."""
    arguments = ["late", location, "--batch", str(batch), "--json"]
    too_slow = JobFailed(
        "late-too-slow",
        f"the records of batch {batch} were not found within {LATE_TIMEOUT_SECONDS:.0f} seconds",
        remedy=f"headwater {' '.join(arguments)}",
    )
    failed = JobFailed("late-failed", "cannot read the records of this batch", remedy=too_slow.remedy)
    return _rows_printed_by(arguments, LATE_TIMEOUT_SECONDS, too_slow, failed)


def find_view_rows(location: str, batch: int) -> list[dict[str, Any]]:
    """Return what ``headwater state --view`` prints for a batch. Runs it in a process of its own, which loads the job."""
    arguments = ["state", location, "--view", "--at", str(batch), "--json"]
    failed = JobFailed(
        "state-view-failed",
        f"the job's state_view gave no result within {VIEW_TIMEOUT_SECONDS:.0f} seconds, or ended with an error",
        remedy=f"headwater {' '.join(arguments)}",
    )
    return _rows_printed_by(arguments, VIEW_TIMEOUT_SECONDS, failed, failed)


def _rows_printed_by(
    arguments: list[str], timeout_seconds: float, too_slow: JobFailed, failed: JobFailed
) -> list[dict[str, Any]]:
    """Return the JSON Lines that a command prints. Raise the error that it prints, or one of the given ones."""
    try:
        done = run_command(arguments, timeout_seconds=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise too_slow from None
    if done.returncode:
        raise _printed_error(done.stderr) or failed
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _printed_error(stderr: str) -> HeadwaterError | None:
    """Return the error that another process printed as JSON; None if it printed none."""
    last = stderr.strip().splitlines()[-1] if stderr.strip() else ""
    try:
        error = json.loads(last)
        return JobFailed(error["error"], error["problem"], evidence=error.get("evidence"), remedy=error.get("help"))
    except (ValueError, KeyError, TypeError):
        return None
