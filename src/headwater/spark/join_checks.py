"""Checks on joins of two streams: what Spark refuses at the start, at the first batch, or not at all.

Spark's own checker does not notice a join without an equality, a side with two event times, or an outer join that can
never emit its unmatched rows. The first two fail at the first batch; the last one runs forever and emits too little.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from headwater.core.errors import JobRefused
from headwater.jobs.job import Job
from headwater.spark.internals.plans import Attribute, Plan, optimized
from headwater.spark.internals.stream_joins import WATERMARK_KEY, expiring_sides, has_equality

SPELLED = {
    "Inner": "an inner join",
    "Cross": "a cross join",
    "LeftOuter": "a left outer join",
    "RightOuter": "a right outer join",
    "FullOuter": "a full outer join",
    "LeftSemi": "a left semi join",
    "LeftAnti": "a left anti join",
}
# The sides whose unmatched rows the join emits, or which Spark requires to expire.
EXPIRING = {"LeftOuter": (0,), "RightOuter": (1,), "FullOuter": (0, 1), "LeftSemi": (0,)}
OUTER = ("LeftOuter", "RightOuter", "FullOuter")
INSTEAD = {
    "Cross": 'join by a condition: left.join(right, F.col("a") == F.col("b"))',
    "LeftAnti": 'use "left_outer", and keep the rows without a match: .where("<key of the right side> IS NULL")',
}
SIDES = ("left", "right")
REMEDY = (
    '.withWatermark(…) on both sides, and a range of time in the condition: "clicked_at BETWEEN shown_at AND '
    'shown_at + INTERVAL 1 HOUR"; or join by equal windows'
)
# Operators that keep entire rows; an aggregation keeps its keys.
WHOLE_ROWS = (
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
)
SEVERAL_OPERATORS = "spark.sql.streaming.statefulOperator.allowMultiple"


def check_joins(spark: SparkSession, job: Job, plan: Plan) -> list[str]:
    """Refuse a join of streams that cannot run in the job's mode or cannot emit its rows; return warnings."""
    if not any(stream_joins(plan)):
        return []
    for join in stream_joins(plan):
        _check_mode(job, join)
    # Spark plans what it has optimized: a condition in a later where() counts, and a column that nobody reads does not.
    planned = optimized(spark, plan)
    joins = list(stream_joins(planned))
    for join in joins:
        _check_equality(spark, job, join)
    if (spark.conf.get(SEVERAL_OPERATORS, "true") or "true").lower() == "true":
        _check_event_times(job, planned)
    for join in joins:
        _check_expiry(spark, job, join)
    return [warning for join in joins for warning in _warnings(spark, job, join)]


def stream_joins(plan: Plan) -> Iterator[Plan]:
    """Yield the joins of two streams in a plan, root first."""
    return (node for node in plan.nodes() if _joins_streams(node))


def _joins_streams(node: Plan) -> bool:
    return node.name == "Join" and all(child.is_streaming for child in node.children)


def _check_mode(job: Job, join: Plan) -> None:
    kind = join.join_type
    if kind in INSTEAD:
        raise JobRefused(
            "join-type",
            f"{job.name} has {SPELLED[kind]} of two streams, which Spark does not support",
            remedy=INSTEAD[kind],
        )
    allowed = ("append",) if kind in OUTER else ("append", "update")
    if job.mode in allowed:
        return
    why = (
        "complete emits the entire result every time, and a join does not keep its earlier results"
        if job.mode == "complete"
        else "a row without a match is emitted once, when the watermark makes it final, and never updated"
    )
    raise JobRefused(
        "mode",
        f"{job.name} cannot run in {job.mode} mode: it has {SPELLED.get(kind, kind)} of two streams",
        evidence={"why": why},
        remedy=f"--mode {' or '.join(allowed)}",
    )


def _check_equality(spark: SparkSession, job: Job, join: Plan) -> None:
    if has_equality(spark, join):
        return
    raise JobRefused(
        "join-condition",
        f"{job.name} joins two streams without comparing any columns for equality",
        evidence={
            "condition": join.join_condition or "none",
            "why": "Spark distributes the rows of both streams by the columns that have to be equal",
        },
        remedy='add an equality: left.join(right, (F.col("a") == F.col("b")) & …)',
    )


def _check_event_times(job: Job, planned: Plan) -> None:
    for node in planned.nodes():
        for place, columns in enumerate(_compared_columns(node)):
            times = {one.id: one.name for one in columns if one.has_metadata(WATERMARK_KEY)}
            if len(times) > 1:
                raise _several_event_times(job, node, place, list(times.values()))


def _compared_columns(node: Plan) -> list[list[Attribute]]:
    """Return the columns of each input in which a stateful operator expects one event time."""
    if _joins_streams(node) or (node.name in WHOLE_ROWS and node.is_streaming):
        return [child.output for child in node.children]
    if node.name == "Aggregate" and node.is_streaming:
        keys = node.grouping_ids()
        return [[one for one in node.children[0].output if one.id in keys]]
    return []


def _several_event_times(job: Job, node: Plan, place: int, columns: list[str]) -> JobRefused:
    where = f"the {SIDES[place]} side of a join" if node.name == "Join" else f"the input of {node.name}"
    return JobRefused(
        "event-times",
        f"{job.name} has {len(columns)} event times in {where}: {', '.join(columns)}",
        evidence={
            "why": "Spark would not know which of them decides whether a row is late, and fails at the first batch"
        },
        remedy=f"keep one of them, for example .drop({columns[-1]!r}) before this step",
    )


def _check_expiry(spark: SparkSession, job: Job, join: Plan) -> None:
    expiring = expiring_sides(spark, join)
    kept = [place for place in EXPIRING.get(join.join_type, ()) if not expiring[place]]
    if not kept:
        return
    sides = " and ".join(SIDES[place] for place in kept)
    outcome = (
        f"it could never emit rows of the {sides} side that have no match"
        if join.join_type in OUTER
        else f"it would keep the rows of the {sides} side forever"
    )
    found = "; ".join(f"{SIDES[place]}: {_event_time(child)}" for place, child in enumerate(join.children))
    raise JobRefused(
        "join-watermark",
        f"{job.name} has {SPELLED[join.join_type]} of two streams without the watermarks that it needs: {outcome}",
        evidence={"watermarks": found, "condition": join.join_condition},
        remedy=REMEDY,
    )


def _warnings(spark: SparkSession, job: Job, join: Plan) -> Iterator[str]:
    kept = [SIDES[place] for place, expires in enumerate(expiring_sides(spark, join)) if not expires]
    if kept:
        sides = "both sides" if len(kept) == 2 else f"the {kept[0]} side"
        yield (
            f"warning: {job.name} keeps the rows of {sides} of its join in the state forever; "
            f"the condition is {join.join_condition}; to expire them: {REMEDY}"
        )


def _event_time(side: Plan) -> str:
    names = [column.name for column in side.output if column.has_metadata(WATERMARK_KEY)]
    return ", ".join(names) or "none"
