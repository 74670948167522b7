"""The checkpoint format that a query began with. Spark does not write it down, and fails on state of the other one."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headwater.checkpoint.files import Files
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.stuck_batch import is_format_two

SETTING = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def go_on_in_its_format(spark: SparkSession, files: Files) -> None:
    """Have the session's next query, or read of state, use the format of a checkpoint that is there already."""
    if is_format_two(CheckpointLogs(files)):
        spark.conf.set(SETTING, "2")
