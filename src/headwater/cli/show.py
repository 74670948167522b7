"""``headwater show``: one batch of a checkpoint, whole."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import LOOK, app
from headwater.cli.names import CheckpointName
from headwater.cli.output import json_line, say


@app.command(rich_help_panel=LOOK)
def show(
    checkpoint: CheckpointName,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="41, HEAD, HEAD~3, @10:30 (UTC)")] = "HEAD",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show one batch whole: offsets from and to, watermark, configuration, state of every store, files.

    Example:
      headwater show browser-stats-stateful HEAD~1
    """
    from headwater.api import Checkpoint
    from headwater.checkpoint.history import files_of
    from headwater.cli.opening import tell_of_interruption

    opened = Checkpoint(checkpoint)
    tell_of_interruption(opened.files)
    history = opened.history
    found = history.batch(opened.resolve(batch, history=history))
    files = files_of(history, found)
    if as_json:
        from headwater.views.batches import batch_in_full

        json_line(batch_in_full(found, files))
        return
    from headwater.views.batches import batch_lines

    for line in batch_lines(found, files):
        say(line)
