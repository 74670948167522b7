"""``headwater fork``: a second checkpoint that continues from a batch of the first."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, open_to_change, print_plan
from headwater.cli.output import note


@app.command(rich_help_panel=CHANGE)
def fork(
    checkpoint: CheckpointName,
    into: Annotated[str, typer.Argument(metavar="INTO", help="New folder or URL, missing or empty.")],
    at: Annotated[
        str, typer.Option(metavar="B", help="Last batch of the fork, or the name of a restore point.")
    ] = "HEAD",
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="New sink for the fork: files:DIR, whose log is created, or delta:PATH or iceberg:TABLE, a copy of the "
            "original's table.",
        ),
    ] = None,
    copy_of: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Table of the original, if headwater run has not recorded it."),
    ] = None,
    dry_run: DryRun = False,
    as_json: PlanJson = False,
) -> None:
    """Create a second checkpoint from an existing one, as of a batch.

    Use it to run a changed job next to the original one. The original checkpoint is not modified, and neither is its
    sink. A copied table shares its data files with the original. headwater promote later gives the fork the place of the
    original.

    Examples:
      headwater fork browser-stats-stateful .headwater/checkpoints/try-it --at 41
      headwater fork visits .headwater/checkpoints/visits-v2 --at before-upgrade --sink files:out-v2
    """
    from headwater.timemachine.fork import plan_query_fork
    from headwater.views.plans import fork_text

    plan = plan_query_fork(open_to_change(checkpoint), into, at=at, sink=sink, copy_of=copy_of)
    print_plan(plan.as_dict(), fork_text(plan).lines(), as_json=as_json)
    if dry_run:
        return
    plan.apply()
    option = f" --sink {shlex.quote(sink)}" if sink else ""
    note(f"done. To run it: headwater run JOB --checkpoint {into}{option}")
