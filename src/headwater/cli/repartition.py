"""``headwater repartition``: change the number of state partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, Yes, confirm
from headwater.cli.job_options import Conf, parse_pairs
from headwater.cli.output import StatusLine, note, say


@app.command(rich_help_panel=CHANGE)
def repartition(
    checkpoint: CheckpointName,
    partitions: Annotated[int, typer.Argument(metavar="N", min=1, help="New number of state partitions.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    conf: Conf = None,
) -> None:
    """Change the number of state partitions.

    A checkpoint otherwise fixes this number (spark.sql.shuffle.partitions) when it is created. Spark repartitions a
    scratch copy, which then adds one batch to the checkpoint. Can be undone.

    Example:
      headwater repartition browser-stats-stateful 8
    """
    from headwater.checkpoint.locate import open_checkpoint

    files, wanted = open_checkpoint(checkpoint), parse_pairs(conf, "--conf")
    from headwater.spark.repartition import check_repartition
    from headwater.spark.repartition import repartition as repartition_state
    from headwater.spark.session import start_session

    before = check_repartition(files, partitions)
    say(f"repartition {files.location} from {before} to {partitions} state partitions, in a separate batch")
    if dry_run or not confirm("Repartition?", yes=yes):
        return
    line = StatusLine()
    line.show("repartitioning the state with Spark")
    jars = ["s3"] if files.location.startswith(("s3://", "s3a://")) else []
    log = Path(".headwater/logs/repartition.log")
    spark = start_session("headwater repartition", conf=wanted, jars=jars, log=log)
    try:
        repartition_state(spark, files, partitions)
    finally:
        line.clear()
        spark.stop()
    note(f"done. To undo: headwater undo {checkpoint}")
