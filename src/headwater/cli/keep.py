"""``headwater keep``: make and drop restore points."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, JsonObject, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import json_line, note, say
from headwater.core.errors import UsageProblem


@app.command(rich_help_panel=CHANGE)
def keep(
    checkpoint: CheckpointName,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the restore point; default: batch- and the batch.")
    ] = None,
    at: Annotated[str, typer.Option(metavar="B", help="Batch to keep: 41, HEAD, HEAD~3 or @10:30 (UTC).")] = "HEAD",
    sink: Annotated[
        str | None,
        typer.Option(metavar="files:DIR", help="File sink of the query, if headwater run has not recorded it."),
    ] = None,
    drop: Annotated[str | None, typer.Option(metavar="NAME", help="Remove a restore point instead.")] = None,
    every: Annotated[str | None, typer.Option("--every", hidden=True)] = None,
    retain: Annotated[str | None, typer.Option("--for", hidden=True)] = None,
    as_json: JsonObject = False,
) -> None:
    """Keep a batch as a restore point, to which you can rewind after Spark has removed its files.

    Spark retains 100 batches by default. A restore point is a folder in the checkpoint with everything that a rewind to the
    batch needs: hard links on a local disk, copies on an object store. The stream may be running and is not disturbed. Use
    the name with rewind --to, fork --at, state --at, show and diff. headwater kept lists the restore points.

    To make them at intervals, start the job with headwater run JOB --keep-every 1h --keep-for 7d.

    Examples:
      headwater keep browser-stats-stateful before-upgrade
      headwater keep browser-stats-stateful --drop before-upgrade
    """
    if every is not None or retain is not None:
        raise UsageProblem(
            "bad-option",
            "restore points at intervals are made by the process that runs the stream",
            remedy=f"headwater run JOB --keep-every {every or '1h'} --keep-for {retain or '7d'}",
        )
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.timemachine.keep import drop_point, make_point

    files = open_checkpoint(checkpoint)
    if drop is not None:
        if name is not None or at != "HEAD":
            raise UsageProblem("bad-option", "--drop takes the name of the restore point and nothing else")
        drop_point(files, drop)
        note(f"dropped {drop}")
        return
    from headwater.checkpoint.record import sink_of
    from headwater.views.kept import point_as_dict, size_text

    point = make_point(files, name, at=at, sink=sink_of(files, sink) if sink else None)
    if as_json:
        json_line(point_as_dict(files, point))
        return
    say(f"kept batch {point.batch_id} as {point.name} ({size_text(files, point)})")
    note(f"To rewind to it: headwater rewind {checkpoint} --to {point.name}")
