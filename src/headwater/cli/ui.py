"""``headwater ui``: the live page of one or several checkpoints."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.names import checkpoint_names
from headwater.cli.output import note, say
from headwater.core.errors import HeadwaterError, JobFailed

if TYPE_CHECKING:
    from headwater.web.server import Place

LATE_SECONDS = 180.0


@app.command(rich_help_panel=LOOK)
def ui(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CKPT...", help="Folders, object-store URLs or jobs' names.", autocompletion=checkpoint_names
        ),
    ],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="By default 8765, or a free one.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Another address than loopback opens the page to others.")] = "127.0.0.1",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let the page rewind and undo; it is read-only otherwise.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Start although a checkpoint is not there yet.")] = False,
) -> None:
    """Serve a live page: batches, watermark, state at any batch, what changed, a key's history; until Ctrl-C.

    The URL has a token in it: nobody gets in without it.

    Example:
      headwater ui browser-stats-stateful
    """
    from headwater.checkpoint.locate import open_checkpoint

    if not wait:
        for called in checkpoints:
            open_checkpoint(called)

    from headwater.web.server import LOOPBACK, PageServer

    server = PageServer(
        [place_of(called) for called in checkpoints],
        host=host,
        port=port,
        allow_changes=allow_changes,
        find_records=late_records,
    )
    if host not in {LOOPBACK, "localhost", "::1"}:
        note(f"the page can be reached from other machines on {host}; whoever has the URL gets in")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    say(server.url)
    stop.wait()
    server.stop()


def place_of(called: str) -> Place:
    """A checkpoint under the name that the user has for it."""
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.web.server import Place

    return Place(_short(called), lambda: open_checkpoint(called))


def _short(called: str) -> str:
    """The last part of a path says enough on a page."""
    name = Path(called.rstrip("/")).name
    return name or called


def late_records(location: str, batch: int) -> list[dict[str, Any]]:
    """What ``headwater late`` finds, asked in a process of its own: it starts Spark."""
    from headwater.cli.children import command_line

    words = ["late", location, "--batch", str(batch), "--json"]
    try:
        done = subprocess.run(
            command_line(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LATE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise JobFailed(
            "late-too-slow",
            f"the records of batch {batch} were not found within {LATE_SECONDS:.0f} seconds",
            remedy=f"headwater {' '.join(words)}",
        ) from None
    if done.returncode:
        raise _as_error(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _as_error(told: str) -> HeadwaterError:
    """The other process's error, as it would have been raised here."""
    last = told.strip().splitlines()[-1] if told.strip() else ""
    try:
        held = json.loads(last)
        return JobFailed(held["error"], held["problem"], evidence=held.get("evidence"), remedy=held.get("help"))
    except (ValueError, KeyError, TypeError):
        return JobFailed("late-failed", "the records could not be read again", evidence={"it says": last or "nothing"})
