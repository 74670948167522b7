"""Checks of plans for the real-time trigger, which takes fewer operators than micro-batches do.

The lists follow Spark's own (``RealTimeModeAllowlist``), which it applies to the physical plan of the first batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyspark
from pyspark.sql import SparkSession

from headwater.core.errors import JobRefused, SetupProblem
from headwater.jobs.job import Job
from headwater.jobs.triggers import parse_trigger
from headwater.spark.internals import real_time
from headwater.spark.internals.plans import Plan

STATEFUL = {
    "Aggregate": "an aggregation",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "custom state (transformWithState)",
}
SUPPORTED = ("Aggregate", "Deduplicate", "TransformWithState")
OTHER_UNSUPPORTED = {
    "GlobalLimit": "limit",
    "MapInPandas": "mapInPandas",
    "MapInArrow": "mapInArrow",
    "FlatMapGroupsInPandas": "applyInPandas",
    "Window": "a window function",
}


def is_real_time(job: Job) -> bool:
    return parse_trigger(job.trigger).kind == "real-time"


def check_real_time(spark: SparkSession, job: Job, plan: Plan) -> None:
    """Refuse a plan that Spark does not run with the real-time trigger: it finds that out only in the first batch."""
    if not is_real_time(job):
        return
    stateful = [node.name for node in plan.nodes() if node.name in STATEFUL and node.is_streaming]
    if stateful and not real_time.probe(spark):
        raise SetupProblem(
            "pyspark-version",
            f"{job.name} keeps state, and the real-time trigger needs PySpark 4.3 or newer for that",
            evidence={"stateful operators": ", ".join(stateful), "installed": pyspark.__version__},
            remedy="--trigger \"1 second\", or pip install 'pyspark>=4.3,<4.4'",
        )
    found = list(dict.fromkeys(_unsupported(plan)))
    if found:
        raise JobRefused(
            "trigger",
            f"the real-time trigger does not support {found[0]}, which {job.name} uses",
            evidence={"unsupported": ", ".join(found), "supported": "groupBy().agg() and dropDuplicates"},
            remedy='--trigger "1 second"',
        )


def _unsupported(plan: Plan) -> Iterator[str]:
    for node in plan.nodes():
        if not node.is_streaming:
            continue
        name = node.name
        if name in STATEFUL and name not in SUPPORTED:
            yield STATEFUL[name]
        elif name in OTHER_UNSUPPORTED:
            yield OTHER_UNSUPPORTED[name]
        elif name == "Join" and all(child.is_streaming for child in node.children):
            yield "a join of two streams"
        elif name == "Union" and any(below.name in STATEFUL and below.is_streaming for below in node.nodes()):
            yield "union after an operator with state"
        if name == "Aggregate" and node.groups_by_session:
            yield "session_window"
        if any(part.class_name == "PythonUDF" for expression in node.expressions for part in expression.parts()):
            yield "a user-defined function in Python"
