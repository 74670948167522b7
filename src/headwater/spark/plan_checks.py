"""Checks on a plan before its query starts: Spark's own checker, and what Spark would only find at run time."""

from __future__ import annotations

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater.core.errors import JobRefused
from headwater.jobs.job import Job
from headwater.jobs.triggers import parse_trigger
from headwater.spark.failures import refusal
from headwater.spark.internals.plans import Plan, analyzed, check_for_streaming
from headwater.spark.join_checks import check_joins
from headwater.spark.real_time_checks import check_real_time

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
STATEFUL_NODES = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
)
GROUP_STATE_NODES = ("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState")
CUSTOM_STATE_NODES = ("TransformWithState", "TransformWithStateInPySpark")


def check_plan(spark: SparkSession, job: Job, result: DataFrame) -> list[str]:
    """Raise ``JobRefused`` if the query would fail at its start or first batch, or never end; return warnings."""
    plan = analyzed(result)
    warnings = check_joins(spark, job, plan)
    _check_custom_state(spark, job, plan)
    check_real_time(spark, job, plan)
    _check_timeouts(spark, job, plan)
    try:
        check_for_streaming(spark, plan, job.mode)
    except PySparkException as error:
        raise _explain_mode(job, error) from error
    return warnings


def _check_custom_state(spark: SparkSession, job: Job, plan: Plan) -> None:
    provider = spark.conf.get(PROVIDER) or ""
    if "RocksDB" in provider or not any(node.name in CUSTOM_STATE_NODES for node in plan.nodes()):
        return
    raise JobRefused(
        "state-store",
        f"{job.name} uses custom state, which this state store does not support",
        evidence={"state store": provider.rpartition(".")[2], "required": "RocksDBStateStoreProvider"},
        remedy=f"headwater run {job.name}   (without --conf {PROVIDER}=…)",
    )


def _check_timeouts(spark: SparkSession, job: Job, plan: Plan) -> None:
    """Refuse processing-time timeouts with available-now: Spark keeps running empty batches to check them."""
    if parse_trigger(job.trigger).kind != "available-now" or spark.conf.get(NO_DATA_BATCHES, "true") == "false":
        return
    if any(_clock_of(node) in ("ProcessingTimeTimeout", "ProcessingTime") for node in plan.nodes()):
        raise JobRefused(
            "trigger",
            f"{job.name} has processing-time timeouts, and with the available-now trigger the query would never end",
            remedy=f'--trigger "1 second" (stop it with Ctrl-C), or --conf {NO_DATA_BATCHES}=false',
        )


def _clock_of(node: Plan) -> str:
    name = node.name
    if name in CUSTOM_STATE_NODES:
        return node.time_mode
    return node.timeout if name in GROUP_STATE_NODES else ""


def _explain_mode(job: Job, error: Exception) -> JobRefused:
    parameters = (error.getMessageParameters() or {}) if isinstance(error, AnalysisException) else {}
    operation = str(parameters.get("operation", ""))
    if "without watermark" in operation:
        return JobRefused(
            "mode",
            f"{job.name} cannot run in append mode: its aggregation has no watermark",
            evidence={"why": "append emits a row once it is final, and without a watermark no group ever is"},
            remedy='add .withWatermark("event_time", "20 minutes") before groupBy, and group by a window of that time; '
            "or --mode update or complete",
        )
    if "no streaming aggregations" in operation:
        return JobRefused(
            "mode",
            f"{job.name} cannot run in complete mode: it has no aggregation",
            evidence={
                "why": "complete emits the entire result every time, and without an aggregation it would grow forever"
            },
            remedy="--mode append",
        )
    if "session window" in operation:
        return JobRefused(
            "mode",
            f"{job.name} cannot run in update mode: it groups by session_window",
            evidence={"why": "the bounds of a session are part of its key and change as it grows"},
            remedy="--mode append or complete",
        )
    return refusal(f"Spark cannot run {job.name} in {job.mode} mode", error)
