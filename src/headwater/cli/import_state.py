"""``headwater import``: replace the state of a checkpoint by exported state."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import DryRun, PlanJson, Yes
from headwater.cli.edit import REASON, SINK, carry_out
from headwater.cli.state_source import OPERATOR, STORE, VAR
from headwater.core.errors import UsageProblem
from headwater.core.ids import StoreRef


@app.command("import", rich_help_panel=CHANGE)
def import_state(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE|CKPT", help="The exported file or folder, with --checkpoint; or the checkpoint, with --from."
        ),
    ],
    checkpoint: Annotated[
        str | None, typer.Option(metavar="CKPT", help="Checkpoint: a folder, an object-store URL or a job name.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="What headwater export wrote: a file or a folder.")
    ] = None,
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    reason: Annotated[str | None, REASON] = None,
    sink: Annotated[str | None, SINK] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: PlanJson = False,
) -> None:
    """Replace state by what headwater export wrote.

    The checkpoint has to have state of the same schema; the number of partitions may differ. Adds a batch that reads no
    input and contains the imported rows in place of the old ones. Can be undone. Does not start Spark.

    Example:
      headwater import totals.parquet --checkpoint running-totals
    """
    from headwater.cli.checkpoint_options import open_to_change
    from headwater.timemachine.transfer import plan_import
    from headwater.views.state_files import read_tables

    if (checkpoint is None) == (source is None):
        raise UsageProblem(
            "bad-option",
            "either --checkpoint or --from is required",
            remedy="headwater import FILE --checkpoint CKPT, or headwater import CKPT --from FILE",
        )
    file, into = (place, checkpoint) if source is None else (source, place)
    assert file is not None
    assert into is not None
    files = open_to_change(into)
    plan = plan_import(files, read_tables(file), StoreRef(operator, store, var), reason=reason, sink=sink)
    carry_out(plan, into, "Replace the state?", dry_run=dry_run, yes=yes, as_json=as_json)
