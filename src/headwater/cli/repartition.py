"""``headwater repartition``: change the number of state partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import (
    CheckpointName,
    DryRun,
    PlanJson,
    Yes,
    confirm,
    open_to_change,
    print_plan,
)
from headwater.cli.job_options import Conf, parse_pairs
from headwater.cli.output import StatusLine, note


@app.command(rich_help_panel=CHANGE)
def repartition(
    checkpoint: CheckpointName,
    partitions: Annotated[int, typer.Argument(metavar="N", min=1, help="New number of state partitions.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    conf: Conf = None,
    as_json: PlanJson = False,
) -> None:
    """Change the number of state partitions.

    A checkpoint otherwise fixes this number (spark.sql.shuffle.partitions) when it is created. Spark repartitions a
    scratch copy, which then adds one batch to the checkpoint. Can be undone.

    Example:
      headwater repartition browser-stats-stateful 8
    """
    from headwater.timemachine.repartition import plan_repartition
    from headwater.views.plans import repartition_text

    files, wanted = open_to_change(checkpoint), parse_pairs(conf, "--conf")
    plan = plan_repartition(files, partitions)
    print_plan(plan.as_dict(), repartition_text(plan).lines(), as_json=as_json)
    if dry_run or not confirm("Repartition?", yes=yes):
        return

    from headwater.spark.repartition import repartition_with_spark

    line = StatusLine()
    line.show("repartitioning the state with Spark")
    try:
        repartition_with_spark(files, partitions, conf=wanted)
    finally:
        line.clear()
    note(f"done. To undo: headwater undo {checkpoint}")
