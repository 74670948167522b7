"""What Spark derives from the condition of a join of two streams: its keys, and which rows its state can expire.

Seen on: PySpark 4.2.0. On 4.0.5 and 4.3.0, only the probe was run, and succeeds.
Without it: ``check`` accepts joins that Spark refuses when the first batch runs, and does not warn of state that never
expires.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headwater.spark.internals.plans import Plan

# Any watermark: only whether a row can expire matters. It does not fit into an int, so that Py4J passes a long.
SOME_TIME_MS = 1 << 40
WATERMARK_KEY = "spark.watermarkDelayMs"


def probe(spark: SparkSession) -> bool:
    catalyst: Any = spark._jvm.org.apache.spark.sql.catalyst
    return callable(catalyst.analysis.StreamingJoinHelper.isWatermarkInJoinKeys) and callable(
        catalyst.planning.ExtractEquiJoinKeys.unapply
    )


def has_equality(spark: SparkSession, join: Plan) -> bool:
    """Return whether the condition of a join compares columns of both sides for equality."""
    jvm: Any = spark._jvm
    return bool(jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(join.node).isDefined())


def expiring_sides(spark: SparkSession, join: Plan) -> tuple[bool, bool]:
    """Return for the left and the right side of a join whether the watermark can ever expire its rows.

    It can if a key of the join has a watermark. Otherwise the side needs an event time of its own, and the condition a
    range of time between it and the event time of the other side.
    """
    jvm: Any = spark._jvm
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(join.node):
        return True, True
    left, right = join.children
    watermark = jvm.scala.Some(SOME_TIME_MS)

    def expires(side: Plan, other: Plan) -> bool:
        bound = helper.getStateValueWatermark(
            side.node.outputSet(), other.node.outputSet(), join.node.condition(), watermark
        )
        return bool(bound.isDefined()) and any(column.has_metadata(WATERMARK_KEY) for column in side.output)

    return expires(left, right), expires(right, left)
