"""Analyzed plans as plain values, read with few calls into the JVM so that a run can afford it.

Seen on: PySpark 4.2.0. On 4.0.5 and 4.3.0, only the probe was run, and succeeds.
Without it: a run does not record what its state means, and ``check`` and ``run`` do not notice when that changes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from headwater.migration.plan_nodes import Column, PlanNode
from headwater.spark.internals.gateway import has_class
from headwater.spark.internals.stored_aggregates import PHYSICAL_AGGREGATION, StoredAggregates

MOST_FIELDS = "spark.sql.debug.maxToStringFields"
SOURCE_METRICS = "headwater_source"
# Characters that no expression contains.
SEPARATOR = "\x1e"
# How Spark shows a call of a Python function: ``f(at#3)#9``.
PYTHON_CALL = re.compile(r"\)#\d+")
DEDUPLICATION = ("Deduplicate", "DeduplicateWithinWatermark")
STATE_FUNCTIONS = (
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "TransformWithState",
    "TransformWithStateInPandas",  # its name in Spark 4.0
    "TransformWithStateInPySpark",
)


def probe(spark: SparkSession) -> bool:
    return getattr(spark, "_jvm", None) is not None and has_class(spark, PHYSICAL_AGGREGATION)


def plan_tree(spark: SparkSession, frame: DataFrame) -> PlanNode:
    """Return the analyzed plan of a DataFrame, down to the decoded records of each source."""
    fields = spark.conf.get(MOST_FIELDS, None)
    spark.conf.set(MOST_FIELDS, str(2**31 - 1))
    try:
        root = frame._jdf.queryExecution().analyzed()
        return _Reader(StoredAggregates(spark, root), spark).read(root)
    finally:
        spark.conf.unset(MOST_FIELDS) if fields is None else spark.conf.set(MOST_FIELDS, fields)


class _Reader:
    def __init__(self, stored: StoredAggregates, spark: SparkSession) -> None:
        self._stored = stored
        self._jvm: Any = spark._jvm

    def read(self, node: Any) -> PlanNode:
        name = str(node.nodeName())
        output = tuple(Column.parse(text) for text in _texts(node.output()))
        if name == "CollectMetrics" and (metrics := str(node.name())).startswith(SOURCE_METRICS):
            return PlanNode(name, output, source=metrics.removeprefix(SOURCE_METRICS).removeprefix("_"))
        children = node.children()
        expressions = _texts(node.expressions())
        is_streaming = bool(node.isStreaming())
        keys, details = _parts(name, node)
        stored = self._stored.next() if name == "Aggregate" and is_streaming else []
        return PlanNode(
            name,
            output,
            expressions,
            tuple(self.read(children.apply(place)) for place in range(children.size())),
            is_streaming,
            keys=keys,
            functions=tuple(one.text for one in stored),
            buffer_sizes=tuple(int(one.function.aggBufferAttributes().size()) for one in stored),
            details=details,
            code=tuple(self._code(node, expressions)),
        )

    def _code(self, node: Any, expressions: tuple[str, ...]) -> list[str]:
        from headwater.spark.function_code import function_digest  # noqa: PLC0415  only for plans with Python functions

        if not any(PYTHON_CALL.search(text) for text in expressions):
            return []
        found = [self._command(call) for call in _python_calls(node.expressions())]
        return [f"{label} {function_digest(command)}" for label, command in found if command is not None]

    def _command(self, call: Any) -> tuple[str, bytes | None]:
        label = str(call.name())
        with suppress(Py4JError):
            return label, bytes(call.func().command().toArray(self._jvm.scala.reflect.ClassTag.Byte()))
        return label, None


def _parts(name: str, node: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the keys of a node and what else defines it."""
    if name == "Aggregate":
        return _texts(node.groupingExpressions()), {}
    if name in DEDUPLICATION:
        return _texts(node.keys()), {}
    if name == "Join":
        condition = node.condition()
        text = str(condition.get().toString()) if condition.isDefined() else ""
        return (), {"type": str(node.joinType().toString()), "condition": text}
    if name == "EventTimeWatermark":
        return (), {"column": str(node.eventTime().toString())}
    if name in STATE_FUNCTIONS:
        return _state_function(name, node)
    return (), {}


def _state_function(name: str, node: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    details = {"output mode": str(node.outputMode().toString())}
    if name.startswith("FlatMap"):
        details["timeout"] = str(node.timeout().toString())
        if name == "FlatMapGroupsInPandasWithState":
            return _texts(node.groupingAttributes()), details | {"state": str(node.stateType().catalogString())}
        return _texts(node.groupingAttributes()), details
    details["time mode"] = str(node.timeMode().toString())
    if name == "TransformWithState":
        return _texts(node.groupingAttributes()), details
    return _texts(node.leftAttributes())[: node.groupingAttributesLen()], details


def _python_calls(expressions: Any) -> list[Any]:
    found = []
    for place in range(expressions.size()):
        expression = expressions.apply(place)
        if hasattr(expression, "func") and str(expression.getClass().getSimpleName()).startswith("Python"):
            found.append(expression)
        found += _python_calls(expression.children())
    return found


def _texts(sequence: Any) -> tuple[str, ...]:
    joined = str(sequence.mkString(SEPARATOR))
    return tuple(joined.split(SEPARATOR)) if joined else ()
