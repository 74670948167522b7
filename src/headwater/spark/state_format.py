"""The checkpoint format that a query began with. Spark does not write it down, and fails on state of the other one."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headwater.checkpoint.files import Files
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import CheckpointUnreadable

SETTING = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def is_format_two(files: Files) -> bool:
    """Whether the last commit names the state files that it left; only format 2 does that."""
    commits = CheckpointLogs(files).commits
    try:
        last = commits.get(commits.ids[-1]) if commits.ids else None
    except CheckpointUnreadable:
        return False
    return last is not None and last.state_unique_ids is not None


def go_on_in_its_format(spark: SparkSession, files: Files) -> None:
    """Have the session's next query, or read of state, use the format of a checkpoint that is there already."""
    if is_format_two(files):
        spark.conf.set(SETTING, "2")
