"""``headwater export``: write the state of a checkpoint to files."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import INSPECT, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import json_line, note
from headwater.cli.state_source import BATCH_HELP, OPERATOR, STORE, VAR
from headwater.core.ids import StoreRef
from headwater.core.text import count


@app.command(rich_help_panel=INSPECT)
def export(
    checkpoint: CheckpointName,
    out: Annotated[str, typer.Argument(metavar="OUT", help="A .parquet or .arrow file; a folder for several stores.")],
    at: Annotated[str, typer.Option(metavar="BATCH", help=BATCH_HELP)] = "HEAD",
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files as JSON objects, one per line.")] = False,
) -> None:
    """Export the state as of a batch, to import it into another checkpoint.

    Writes one row per key, with everything that headwater import needs to know in the metadata of the file. State with
    several stores or variables is written to a folder, one file for each. Does not start Spark.

    Example:
      headwater export running-totals totals.parquet
    """
    from headwater.checkpoint.restore_points import locate_batch
    from headwater.cli.checkpoint_options import open_to_read
    from headwater.statefiles.reader import StateReader
    from headwater.timemachine.transfer import export_streams, origin_of
    from headwater.views.state_files import write_tables

    located = locate_batch(open_to_read(checkpoint), at)
    batch = located.batch_id
    streams = export_streams(StateReader(located.files), batch, StoreRef(operator, store, var))
    origins = [origin_of(stream, out) for stream in streams]
    for origin, (path, rows) in zip(origins, write_tables(streams, out).items(), strict=True):
        if as_json:
            json_line({"file": str(path), "rows": rows, "state": origin.label, "batch_id": batch})
        else:
            note(f"{origin.label}: {count(rows, 'row')} as of batch {batch} written to {path}")
