"""``headwater compact``: delete the files that rewinds have set aside."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, confirm
from headwater.cli.output import note, say
from headwater.core.text import count


@app.command(rich_help_panel=CHANGE)
def compact(
    checkpoint: CheckpointName,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete the files that rewinds have set aside, to free disk space.

    These rewinds can no longer be undone afterwards.

    Example:
      headwater compact visits-windows-counter
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.timemachine.compact import empty_quarantine, measure_quarantine, sinks_with_quarantine
    from headwater.timemachine.journal import read_entries

    files = open_checkpoint(checkpoint)
    changes = {entry.change.change_id for entry in read_entries(files)}
    sinks = sinks_with_quarantine(files)
    found = [measure_quarantine(root) for root in (files, *sinks)]
    number, size = sum(one.files for one in found), sum(one.bytes for one in found)
    say(f"{count(number, 'file')} ({size / 1_000_000:,.1f} MB) set aside in {files.location}")
    if not number or dry_run or not confirm("Delete them permanently?", yes=yes):
        return
    empty_quarantine(files, sinks, only=changes)
    note("done")
