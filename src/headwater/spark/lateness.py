"""Which input records a stateful operator drops as late.

Spark only counts them, and after partial aggregation at that. Here the records of one batch go, each with a tag, through
the part of the job that lies before its first stateful operator, and are then judged by that operator's own rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.jobs.job import Job
from headwater.spark.plan_checks import STATEFUL_NODES, nodes
from headwater.spark.prepared import apply_function

TAG = "_headwater_tag"
WATERMARK_KEY = "spark.watermarkDelayMs"
LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"


@dataclass(frozen=True)
class LatenessRule:
    """What the operator compares with the watermark: the end of a window or session, or the event time itself."""

    operator: str
    compares: Literal["window end", "session end", "event time"]
    position: int
    """Of the compared column among the columns that reach the operator."""
    event_time_position: int | None = None


def find_rule(job: Job, stream: DataFrame) -> LatenessRule | None:
    """The rule of the job's first stateful operator; None where nothing is ever dropped. ``stream`` is its source."""
    if job.per_batch or job.mode == "complete":
        return None
    operator = _first_stateful(apply_function(job, stream)._jdf.queryExecution().analyzed())
    if operator is None:
        return None
    output = _items(operator.children().apply(0).output())
    marked = [place for place, attribute in enumerate(output) if attribute.metadata().contains(WATERMARK_KEY)]
    times = [place for place in marked if output[place].dataType().typeName() != "struct"]
    if operator.nodeName() in {"Aggregate", "Deduplicate"}:
        keys = operator.groupingExpressions() if operator.nodeName() == "Aggregate" else operator.keys()
        ids = {key.exprId().id() for key in _items(keys)}
        marked = [place for place in marked if output[place].exprId().id() in ids]
    if not marked:
        return None
    attribute = output[marked[0]]
    event_time = times[0] if times else None
    if attribute.dataType().typeName() != "struct":
        return LatenessRule(operator.nodeName(), "event time", marked[0], marked[0])
    session = attribute.metadata().contains("spark.sessionWindow")
    return LatenessRule(operator.nodeName(), "session end" if session else "window end", marked[0], event_time)


def late_records(spark: SparkSession, job: Job, tagged: DataFrame, rule: LatenessRule, watermark_ms: int) -> DataFrame:
    """The records of a static, tagged batch that the operator drops at this watermark.

    Columns: the tag, ``event_time``, and ``compared``, the time that lay behind the watermark. A record that falls into
    several windows is dropped when all of them are past.
    """
    plan = _first_stateful(apply_function(job, tagged)._jdf.queryExecution().analyzed())
    assert plan is not None
    jvm: Any = spark._jvm
    carried, tag = _carry_tag(jvm, plan.children().apply(0))
    output = _items(carried.output())
    tag_position = next(place for place, item in enumerate(output) if item.exprId().id() == tag.exprId().id())
    rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, carried), spark)
    rows = rows.toDF(*[f"c{place}" for place in range(len(output))])
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


def _first_stateful(plan: Any) -> Any | None:
    """The stateful operator that is nearest to the source, which is the one that sees the records."""
    found = [node for node in nodes(plan) if node.nodeName() in STATEFUL_NODES]
    return found[-1] if found else None


def _carry_tag(jvm: Any, plan: Any) -> tuple[Any, Any]:
    """The same plan with the tag kept to its top, where the job's projections would have left it behind."""
    for attribute in _items(plan.output()):
        if attribute.name() == TAG:
            return plan, attribute
    children = _items(plan.children())
    if len(children) != 1:
        raise ValueError(f"records cannot be followed through {plan.nodeName()}")
    child, tag = _carry_tag(jvm, children[0])
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    match plan.nodeName():
        case "Project":
            return logical.Project(_plus(plan.projectList(), tag), child), tag
        case "Expand":
            projections = _scala(jvm, [_plus(projection, tag) for projection in _items(plan.projections())])
            return logical.Expand(projections, _plus(plan.output(), tag), child), tag
        case _:
            return plan.withNewChildren(_scala(jvm, [child])), tag


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def _plus(sequence: Any, item: Any) -> Any:
    return getattr(sequence, "$colon$plus")(item)


def _scala(jvm: Any, items: list[Any]) -> Any:
    held = jvm.java.util.ArrayList()
    for item in items:
        held.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(held).toSeq()
