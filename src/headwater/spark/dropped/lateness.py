"""Which input records a stateful operator drops as late.

Spark only counts dropped rows, and only after partial aggregation. Here the records of one batch, each with a tag, pass
through the part of the job before the operator, and the operator's own rule is then applied to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from headwater.jobs.job import Frames, Job
from headwater.spark.dropped.tagging import TAG, carry_tag, hidden, marked, source_paths
from headwater.spark.internals.plans import Plan, analyzed, optimized
from headwater.spark.plan_checks import STATEFUL_NODES
from headwater.spark.prepared import apply_function

WATERMARK_KEY = "spark.watermarkDelayMs"
SESSION_KEY = "spark.sessionWindow"
DEDUPLICATION = ("Deduplicate", "DeduplicateWithinWatermark")
JOIN = "Join"
Compared: TypeAlias = Literal["window end", "session end", "event time"]

__all__ = ["TAG", "LatenessRule", "check_traceable", "find_rules", "late_records", "source_order"]


@dataclass(frozen=True)
class LatenessRule:
    """The column that an operator compares with the watermark: the end of a window or session, or the event time.

    The records come from ``source`` and enter the operator through its input number ``side``, which is 0 except for the
    right side of a join.
    """

    operator: str
    compares: Compared
    position: int
    """The index of the compared column among the operator's input columns."""
    delay_ms: int
    event_time_position: int | None = None
    source: str = ""
    place: int = 0
    """The index of the operator among the joins and stateful operators of the plan, root first."""
    side: int = 0
    column_id: int = 0
    """Identifies the compared column in the plan."""


def find_rules(job: Job, frames: Frames) -> list[LatenessRule]:
    """Return the rules by which records of the job's sources are dropped, at most one for each use of a source.

    ``frames`` are the job's inputs. Of the stateful operators between a source and the sink, the first that drops
    records counts: later ones receive results instead of records, or records that the first one accepted at the same
    watermark.
    """
    if job.per_batch:
        return []
    plan = _marked_plan(job, frames)
    places = list(_operators(plan))
    unread = _UnreadColumns(next(iter(frames.values())).sparkSession, plan)
    rules = []
    for source, path in source_paths(plan):
        for crossing in path:
            operator = crossing.node
            if not _is_stateful(operator):
                continue
            rule = _rule_of(operator, crossing.side, job)
            if rule is not None and unread.include(crossing.location, rule):
                rule = None
            if rule is not None:
                rules.append(replace(rule, source=source, place=places.index(crossing.location)))
            if rule is not None or operator.name not in DEDUPLICATION:
                break
    return rules


def source_order(job: Job, frames: Frames) -> list[str]:
    """Return the names of the job's sources in the order of their offsets. A source that is used twice occurs twice."""
    if len(job.sources) == 1 and job.per_batch:
        return list(job.sources)
    return [source for source, _ in source_paths(_marked_plan(job, frames))]


def check_traceable(spark: SparkSession, job: Job, frames: Frames, rule: LatenessRule) -> None:
    """Refuse a job whose records cannot be traced to the operator. Nothing is read."""
    schema = StructType([*frames[rule.source].schema.fields, StructField(TAG, IntegerType())])
    late_records(spark, job, frames, spark.createDataFrame([], schema), rule, 0)


def late_records(
    spark: SparkSession, job: Job, frames: Frames, tagged: DataFrame, rule: LatenessRule, watermark_ms: int
) -> DataFrame:
    """Return the records of a static, tagged batch of the rule's source that the operator drops at a watermark.

    The columns are the tag, ``event_time``, and ``compared``, the time that was not after the watermark. A record that
    belongs to several windows is dropped when all of them have ended. ``frames`` are the job's inputs, of which only
    the static tables are read.
    """
    # Of a list without rows, Spark would know that a join has no results, and replace the join.
    nothing: Any = spark.sparkContext.emptyRDD() if rule.operator == JOIN else []
    empty = {name: spark.createDataFrame(nothing, frames[name].schema) for name in job.sources}
    statics = {name: frames[name] for name in job.statics}
    plan = analyzed(apply_function(job, {**statics, **empty, rule.source: hidden(tagged)}))
    operator = list(_operators(plan).values())[rule.place]
    carried, tag = carry_tag(spark, operator.children[rule.side], without=DEDUPLICATION)
    if operator.name == JOIN:
        carried = _entering_rows(spark, operator, rule.side, carried)
    output = carried.output
    tag_position = next(place for place, attribute in enumerate(output) if attribute.id == tag.id)
    rows = carried.to_frame(spark).toDF(*[f"c{place}" for place in range(len(output))])
    columns = [f"c{place}" for place in range(len(output)) if place != tag_position]
    compared = (
        F.col(columns[rule.position]) if rule.compares == "event time" else F.col(f"{columns[rule.position]}.end")
    )
    event_time = compared if rule.event_time_position is None else F.col(columns[rule.event_time_position])
    late = F.unix_micros(compared.cast("timestamp")) <= F.lit(watermark_ms * 1000)
    verdicts = rows.where(F.col(f"c{tag_position}").isNotNull())
    verdicts = verdicts.groupBy(F.col(f"c{tag_position}").alias(TAG)).agg(
        F.every(late).alias("late"), F.max(event_time).alias("event_time"), F.max(compared).alias("compared")
    )
    return verdicts.where("late").drop("late")


def _entering_rows(spark: SparkSession, join: Plan, side: int, rows: Plan) -> Plan:
    """Return the rows of one side that reach a join.

    Spark removes rows that can match nothing and are not emitted without a match before the join, such as those whose
    key is null. The join does not count them as late.
    """
    children = join.children
    children[side] = rows
    after = optimized(spark, join.with_children(spark, children))
    found = next((node for node in after.nodes() if node.name == JOIN), None)
    return rows if found is None else rows.where(spark, found.children[side].conditions())


def _marked_plan(job: Job, frames: Frames) -> Plan:
    statics: Mapping[str, DataFrame] = {name: frames[name] for name in job.statics}
    streams = marked({name: frames[name] for name in job.sources})
    return analyzed(apply_function(job, {**statics, **streams}))


def _operators(plan: Plan) -> dict[tuple[int, ...], Plan]:
    """Return the joins and stateful operators by location, root first: the same ones for streams and static frames."""
    return {at: node for at, node in plan.located() if node.name in (*STATEFUL_NODES, JOIN)}


class _UnreadColumns:
    """The columns that Spark does not read because nothing uses them, which it therefore cannot compare either.

    A join by ``id`` that emits only ``id`` does not drop late rows, even if the stream has a watermark.
    """

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark = spark
        self._plan = plan

    @cached_property
    def _inputs(self) -> dict[tuple[int, ...], list[set[int]]]:
        """The columns of each input of the operators that keep entire rows, after optimization."""
        before = {at: node for at, node in self._plan.located() if node.name in (*DEDUPLICATION, JOIN)}
        after = [node for node in optimized(self._spark, self._plan).nodes() if node.name in (*DEDUPLICATION, JOIN)]
        if [node.name for node in before.values()] != [node.name for node in after]:
            return {}
        columns = [[{one.id for one in child.output} for child in node.children] for node in after]
        return dict(zip(before, columns, strict=True))

    def include(self, location: tuple[int, ...], rule: LatenessRule) -> bool:
        """Return whether the column that a rule compares is not read."""
        if rule.operator not in (*DEDUPLICATION, JOIN):
            return False
        inputs = self._inputs.get(location)
        return inputs is not None and rule.column_id not in inputs[rule.side]


def _is_stateful(operator: Plan) -> bool:
    """Return whether a node of a streaming plan keeps state; a join of a stream with a static table does not."""
    if operator.name == JOIN:
        return all(child.is_streaming for child in operator.children)
    return operator.name in STATEFUL_NODES and operator.is_streaming


def _rule_of(operator: Plan, side: int, job: Job) -> LatenessRule | None:
    """Return the rule of one operator, as in Spark's ``applyRemovingRowsOlderThanWatermark``; None if it drops nothing.

    A join applies it to each side by that side's own event time.
    """
    output = operator.children[side].output
    marked_places = [place for place, attribute in enumerate(output) if attribute.has_metadata(WATERMARK_KEY)]
    times = [place for place in marked_places if not output[place].is_struct]
    if operator.name == "Aggregate":
        ids = operator.grouping_ids()
        marked_places = [place for place in marked_places if output[place].id in ids]
    elif not _drops_late_rows(operator):
        return None
    if not marked_places:
        return None
    attribute = output[marked_places[0]]
    delay_ms = attribute.number_in_metadata(WATERMARK_KEY)
    if not attribute.is_struct:
        compares: Compared = "event time"
        times = marked_places
    else:
        compares = "session end" if attribute.has_metadata(SESSION_KEY) else "window end"
    if operator.name == "Aggregate" and job.mode == "complete" and compares != "session end":
        return None
    return LatenessRule(
        operator.name,
        compares,
        marked_places[0],
        delay_ms,
        times[0] if times else None,
        side=side,
        column_id=attribute.id,
    )


def _drops_late_rows(operator: Plan) -> bool:
    """Return False for custom state whose timers do not follow event time: it receives late records."""
    match operator.name:
        case "FlatMapGroupsWithState" | "FlatMapGroupsInPandasWithState":
            return "EventTime" in operator.timeout
        case "TransformWithState" | "TransformWithStateInPySpark":
            return "EventTime" in operator.time_mode
        case _:
            return True
