"""``headwater show``: everything about one batch."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import INSPECT, JsonObject, app
from headwater.cli.checkpoint_options import CheckpointName, warn_if_interrupted
from headwater.cli.output import json_line, say
from headwater.cli.state_source import BATCH_HELP


@app.command(rich_help_panel=INSPECT)
def show(
    checkpoint: CheckpointName,
    batch: Annotated[str, typer.Argument(metavar="BATCH", help=BATCH_HELP)] = "HEAD",
    as_json: JsonObject = False,
) -> None:
    """Show everything about one batch.

    Shows the offsets of each source, the watermark, the configuration, the state of every store, and the files. Does not
    start Spark.

    Example:
      headwater show browser-stats-stateful HEAD~1
    """
    from headwater.checkpoint.history import History, files_of
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.checkpoint.restore_points import locate_batch
    from headwater.checkpoint.watermark_hold import watermark_hold
    from headwater.timemachine.journal import added_batches

    opened = open_checkpoint(checkpoint)
    warn_if_interrupted(opened)
    located = locate_batch(opened, batch)
    history = History(located.files)
    found = history.batch(located.batch_id)
    files = files_of(history, found)
    hold = watermark_hold(history.logs, found.batch_id)
    added_by = added_batches(opened).get(found.batch_id)
    if as_json:
        from headwater.views.batches import batch_in_full

        json_line(batch_in_full(found, files, hold, added_by))
        return
    from headwater.views.batches import batch_lines

    for line in batch_lines(found, files, hold, added_by):
        say(line)
