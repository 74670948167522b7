"""``headwater compact``: have the room of the quarantine back."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.changing import confirmed
from headwater.cli.names import CheckpointName
from headwater.cli.output import note, say


@app.command(rich_help_panel=CHANGE)
def compact(
    checkpoint: CheckpointName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove for good what rewinds have set aside. They cannot be undone afterwards.

    Example:
      headwater compact visits-windows-counter
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.timemachine.compact import empty_quarantine, measure, sinks_of

    files = open_checkpoint(checkpoint)
    sinks = sinks_of(files)
    found = [measure(root) for root in (files, *sinks)]
    number, size = sum(one.files for one in found), sum(one.bytes for one in found)
    say(f"{number} files ({size / 1_000_000:,.1f} MB) are set aside in {files.location}")
    if not number or dry_run or not confirmed("Remove them for good?", yes=yes):
        return
    empty_quarantine(files, sinks)
    note("done")
