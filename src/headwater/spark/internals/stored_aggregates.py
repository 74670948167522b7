"""The aggregate functions of a plan in the order in which the state stores them.

Spark plans an aggregation from the optimized plan. A projection above the aggregation is part of it there, so the order is
that of the projection, and functions that nothing uses are gone. Expressions are shown as in the analyzed plan: the
optimizer rewrites some of them, such as sums of decimals.

Seen on: PySpark 4.2.0.
Without it: the order is that of the code, which is wrong if a later ``select`` has another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.spark.internals.gateway import has_class

PHYSICAL_AGGREGATION = "org.apache.spark.sql.catalyst.planning.PhysicalAggregation"


def probe(spark: SparkSession) -> bool:
    return getattr(spark, "_jvm", None) is not None and has_class(spark, PHYSICAL_AGGREGATION)


@dataclass(frozen=True)
class StoredAggregate:
    """An aggregate function: its text in the analyzed plan, and the function as Spark runs it."""

    text: str
    function: Any


class StoredAggregates:
    """The aggregations of a plan, each with what the state stores for it."""

    def __init__(self, spark: SparkSession, root: Any) -> None:
        self._jvm: Any = spark._jvm
        written = [self._functions(node) for node in _aggregations(root)]
        stored = written
        if any(written):
            with suppress(
                Py4JError, PySparkException
            ):  # a plan that cannot be optimized by itself is taken as it is written
                session: Any = spark._jsparkSession
                optimized = session.sessionState().optimizer().execute(root)
                stored = [self._functions(node) for node in _aggregations(optimized)]
        left = dict(enumerate(stored))
        self._found = [_matched(one, left, place) for place, one in enumerate(written)]
        self._left = iter(self._found)

    def __iter__(self) -> Iterator[list[StoredAggregate]]:
        return iter(self._found)

    def next(self) -> list[StoredAggregate]:
        """Return the functions of the next streaming aggregation, root first."""
        return next(self._left, [])

    def _functions(self, aggregation: Any) -> list[Any]:
        parts = self._jvm.org.apache.spark.sql.catalyst.planning.PhysicalAggregation.unapply(aggregation).get()._2()
        return [parts.apply(place) for place in range(parts.size())]


def _aggregations(node: Any) -> Iterator[Any]:
    if str(node.nodeName()) == "Aggregate" and bool(node.isStreaming()):
        yield node
    children = node.children()
    for place in range(children.size()):
        yield from _aggregations(children.apply(place))


def _matched(written: list[Any], left: dict[int, list[Any]], place: int) -> list[StoredAggregate]:
    """Return the functions of an aggregation as they are stored, and take them out of those that are left.

    They keep their ids when they are rewritten. A plan that uses an aggregation twice has two with the same ids.
    """
    by_id = {_id(one): one for one in written}
    found = next((number for number, some in left.items() if any(_id(one) in by_id for one in some)), None)
    unknown = written if left.get(place, written) else []
    own = unknown if found is None else left.pop(found)
    return [StoredAggregate(str(_as_written(one, by_id, written).toString()), one.aggregateFunction()) for one in own]


def _as_written(stored: Any, by_id: dict[int, Any], written: list[Any]) -> Any:
    """Return a function as the code has it. Of two equal ones, the analyzed plan may have kept the other one."""
    same = by_id.get(_id(stored))
    return same or next((one for one in written if one.semanticEquals(stored)), stored)


def _id(aggregate: Any) -> int:
    return int(aggregate.resultId().id())
