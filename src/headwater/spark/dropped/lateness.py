"""Which input records a stateful operator drops as late.

Spark only counts dropped rows, and only after partial aggregation. Here the records of one batch, each with a tag, pass
through the part of the job before the operator, and the operator's own rule is then applied to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from headwater.jobs.job import Job
from headwater.spark.dropped.tagging import TAG, carry_tag, has_tag
from headwater.spark.internals.plans import Plan, analyzed
from headwater.spark.plan_checks import STATEFUL_NODES
from headwater.spark.prepared import apply_function

WATERMARK_KEY = "spark.watermarkDelayMs"
SESSION_KEY = "spark.sessionWindow"
DEDUPLICATION = ("Deduplicate", "DeduplicateWithinWatermark")

__all__ = ["TAG", "LatenessRule", "check_traceable", "find_rule", "late_records"]


@dataclass(frozen=True)
class LatenessRule:
    """The column that an operator compares with the watermark: the end of a window or session, or the event time."""

    operator: str
    compares: Literal["window end", "session end", "event time"]
    position: int
    """The index of the compared column among the operator's input columns."""
    delay_ms: int
    event_time_position: int | None = None
    above: int = 0
    """The number of stateful operators that drop nothing between the source and this one."""


def find_rule(job: Job, stream: DataFrame) -> LatenessRule | None:
    """Return the rule of the first stateful operator that drops records; None if none does.

    ``stream`` is the job's source. Later operators receive results instead of records, or records that the first one
    accepted at the same watermark.
    """
    if job.per_batch:
        return None
    plan = analyzed(apply_function(job, stream))
    for above, operator in enumerate(_stateful(plan, lambda node: node.is_streaming)):
        rule = _rule_of(operator, above, job)
        if rule is not None:
            return rule
        if operator.name not in DEDUPLICATION:
            return None
    return None


def check_traceable(spark: SparkSession, job: Job, stream: DataFrame, rule: LatenessRule) -> None:
    """Refuse a job whose records cannot be traced to the operator. Nothing is read."""
    schema = StructType([*stream.schema.fields, StructField(TAG, IntegerType())])
    late_records(spark, job, spark.createDataFrame([], schema), rule, 0)


def late_records(spark: SparkSession, job: Job, tagged: DataFrame, rule: LatenessRule, watermark_ms: int) -> DataFrame:
    """Return the records of a static, tagged batch that the operator drops at a watermark.

    The columns are the tag, ``event_time``, and ``compared``, the time that was not after the watermark. A record that
    belongs to several windows is dropped when all of them have ended.
    """
    plan = analyzed(apply_function(job, tagged))
    operator = _stateful(plan, has_tag)[rule.above]
    carried, tag = carry_tag(spark, operator.children[0], without=DEDUPLICATION)
    output = carried.output
    tag_position = next(place for place, attribute in enumerate(output) if attribute.id == tag.id)
    rows = carried.to_frame(spark).toDF(*[f"c{place}" for place in range(len(output))])
    columns = [f"c{place}" for place in range(len(output)) if place != tag_position]
    compared = (
        F.col(columns[rule.position]) if rule.compares == "event time" else F.col(f"{columns[rule.position]}.end")
    )
    event_time = compared if rule.event_time_position is None else F.col(columns[rule.event_time_position])
    late = F.unix_micros(compared.cast("timestamp")) <= F.lit(watermark_ms * 1000)
    verdicts = rows.groupBy(F.col(f"c{tag_position}").alias(TAG)).agg(
        F.every(late).alias("late"), F.max(event_time).alias("event_time"), F.max(compared).alias("compared")
    )
    return verdicts.where("late").drop("late")


def _rule_of(operator: Plan, above: int, job: Job) -> LatenessRule | None:
    """Return the rule of one operator, as in Spark's ``applyRemovingRowsOlderThanWatermark``; None if it drops nothing."""
    output = operator.children[0].output
    marked = [place for place, attribute in enumerate(output) if attribute.has_metadata(WATERMARK_KEY)]
    times = [place for place in marked if not output[place].is_struct]
    if operator.name == "Aggregate":
        ids = operator.grouping_ids()
        marked = [place for place in marked if output[place].id in ids]
    elif not _drops_late_rows(operator):
        return None
    if not marked:
        return None
    attribute = output[marked[0]]
    delay_ms = attribute.number_in_metadata(WATERMARK_KEY)
    if not attribute.is_struct:
        compares: Literal["window end", "session end", "event time"] = "event time"
        times = marked
    else:
        compares = "session end" if attribute.has_metadata(SESSION_KEY) else "window end"
    if operator.name == "Aggregate" and job.mode == "complete" and compares != "session end":
        return None
    return LatenessRule(operator.name, compares, marked[0], delay_ms, times[0] if times else None, above)


def _drops_late_rows(operator: Plan) -> bool:
    """Return False for custom state whose timers do not follow event time: it receives late records."""
    match operator.name:
        case "FlatMapGroupsWithState" | "FlatMapGroupsInPandasWithState":
            return "EventTime" in operator.timeout
        case "TransformWithState" | "TransformWithStateInPySpark":
            return "EventTime" in operator.time_mode
        case _:
            return True


def _stateful(plan: Plan, belongs: Callable[[Plan], bool]) -> list[Plan]:
    """Return the stateful operators of the stream, the one nearest to the source first."""
    return [node for node in reversed(list(plan.nodes())) if node.name in STATEFUL_NODES and belongs(node)]
