"""The checkpoint format that a query began with. Spark does not write it down, and fails on state of the other one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.spark.session import temporary_settings

SETTING = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@contextmanager
def in_its_format(spark: SparkSession, files: FileTree) -> Iterator[None]:
    """Have what the session starts or reads in this block use the format of a checkpoint that is there already."""
    with temporary_settings(spark, {SETTING: "2"} if CheckpointLogs(files).is_format_two else {}):
        yield
