"""``headwater repartition``: another number of state partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.changing import confirmed
from headwater.cli.job_options import Conf, pairs
from headwater.cli.names import checkpoint_names
from headwater.cli.output import LivingLine, note, say


@app.command(rich_help_panel=CHANGE)
def repartition(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CKPT", help="A folder, a URL or a job's name.", autocompletion=checkpoint_names)
    ],
    partitions: Annotated[int, typer.Argument(metavar="N", min=1, help="The number of state partitions to have.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask: the query is stopped.")] = False,
    conf: Conf = None,
) -> None:
    """Change the number of state partitions (shuffle partitions), which a checkpoint otherwise fixes for good.

    Spark does the work on a scratch copy; the checkpoint then gets one more batch, which undo takes away again.

    Example:
      headwater repartition browser-stats-stateful 8
    """
    from headwater.checkpoint.locate import open_checkpoint

    files, wanted = open_checkpoint(checkpoint), pairs(conf, "--conf")
    from headwater.spark.repartition import check_repartition
    from headwater.spark.repartition import repartition as do_it
    from headwater.spark.session import start_session

    before = check_repartition(files, partitions)
    say(f"repartition {files.location}: {before} state partitions become {partitions}, in one batch of their own")
    if dry_run or not confirmed("Repartition?", yes=yes):
        return
    line = LivingLine()
    line.show("Spark is repartitioning the state")
    jars = ["s3"] if files.location.startswith(("s3://", "s3a://")) else []
    log = Path(".headwater/logs/repartition.log")
    spark = start_session("headwater repartition", conf=wanted, jars=jars, log=log)
    try:
        do_it(spark, files, partitions)
    finally:
        line.clear()
        spark.stop()
    note(f"done. To put it back: headwater undo {checkpoint}")
