"""The Spark session that scenarios share, with settings for batches of a few records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.spark.session import start_session

# What makes large batches fast, generated code and the optimizing compiler, takes longer than a small batch itself.
SMALL_BATCHES = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    # Checks of Spark's own optimizer after each rule, a tenth of the time of a small batch.
    "spark.sql.lightweightPlanChangeValidation": "false",
    # Without the optimizing compiler, Java reserves so little memory for compiled code that Spark soon fills it.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
}
CONF = {
    "spark.sql.shuffle.partitions": "2",
    # Short enough that snapshots are uploaded even in a test of ten batches.
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    # How long a query that has no input waits before it looks for a feed.
    "spark.sql.streaming.pollingDelay": "2ms",
    **SMALL_BATCHES,
}


def start_scenario_session(
    folder: Path, conf: Mapping[str, str] | None = None, jars: Sequence[str] = ("spark",)
) -> SparkSession:
    """Start Spark on two cores, with its warehouse and its log in ``folder``. ``conf`` replaces any of the settings."""
    settings = {"spark.sql.warehouse.dir": str(folder / "warehouse"), **CONF, **(conf or {})}
    return start_session("headwater tests", master="local[2]", conf=settings, jars=jars, log=folder / "spark.log")
