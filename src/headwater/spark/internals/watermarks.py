"""The watermark of each ``withWatermark`` of a running query, with the source that it reads.

Spark's progress reports contain the global watermark only. ``MicroBatchExecution.watermarkTracker`` has one per operator,
``sourceIdMap`` (from Spark 4.2 on) the names of the sources in the offset log. Reading them takes two milliseconds per
batch, and happens only for queries with several sources.

Seen on: PySpark 4.2.0. On 4.0.5 and 4.3.0, only the probe was run, and succeeds.
Without it: which source holds the watermark back is concluded from the offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headwater.checkpoint.record import OperatorWatermark
from headwater.spark.internals.gateway import first_class

STREAMING = "org.apache.spark.sql.execution.streaming"
EXECUTION = (f"{STREAMING}.runtime.MicroBatchExecution", f"{STREAMING}.MicroBatchExecution")  # the second on Spark 4.0


def probe(spark: SparkSession) -> bool:
    jvm: Any = spark._jvm
    execution = first_class(spark, EXECUTION)
    if execution is None:
        return False
    loaded = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(execution)
    names = {method.getName() for method in loaded.getMethods()}
    return {"watermarkTracker", "logicalPlan", "sources"} <= names


@dataclass(frozen=True)
class _Operator:
    node_id: str
    column: str
    delay_ms: int
    source: str | None


class QueryWatermarks:
    """Reads the watermarks of one query, also after it has ended."""

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        self._jvm: Any = spark._jvm
        self._execution: Any = query._jsq.streamingQuery()
        self._source_ids: tuple[str, ...] | None = None
        self._operators: tuple[_Operator, ...] = ()

    def source_ids(self) -> tuple[str, ...]:
        """Return the names of the sources in the offset log, in the order of Spark's reports; empty if unknown."""
        self._prepare()
        return self._source_ids or ()

    def read(self) -> tuple[OperatorWatermark, ...]:
        """Return the newest event time of each operator so far; empty if the query has one source, or if unknown."""
        self._prepare()
        if not self._operators:
            return ()
        try:
            tracked = _pairs(self._execution.watermarkTracker().watermarkMap())
            reached = {str(node): value.get() if value.isDefined() else None for node, value in tracked}
        except (Py4JError, TypeError):
            return ()
        return tuple(
            OperatorWatermark(
                one.source,
                one.column,
                one.delay_ms,
                None if (watermark := reached.get(one.node_id)) is None else int(watermark) + one.delay_ms,
            )
            for one in self._operators
        )

    def _prepare(self) -> None:
        """Read the plan, once: it does not change while the query runs."""
        if self._source_ids is not None:
            return
        self._source_ids = ()
        try:
            streams = _items(self._execution.sources())
            if len(streams) < 2:
                return
            named = self._named(streams)
            ids = [next((name for name, other in named if other.equals(stream)), None) for stream in streams]
            if None not in ids:
                self._source_ids = tuple(str(name) for name in ids)
            self._operators = tuple(self._found_in(self._execution.logicalPlan(), named))
        except (Py4JError, TypeError):  # another version of Spark
            self._operators = ()

    def _named(self, streams: list[Any]) -> list[tuple[str, Any]]:
        """Return the sources with their names in the offset log: positions before Spark 4.2."""
        if "sourceIdMap" not in dir(self._execution):
            return [(str(position), stream) for position, stream in enumerate(streams)]
        return [(str(name), stream) for name, stream in _pairs(self._execution.sourceIdMap())]

    def _found_in(self, plan: Any, named: list[tuple[str, Any]]) -> list[_Operator]:
        found = []
        if _class(plan) == "EventTimeWatermark":
            sources = {source for leaf in _leaves(plan) if (source := _source_of(leaf, named)) is not None}
            interval = self._jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
            found.append(
                _Operator(
                    str(plan.nodeId()),
                    str(plan.eventTime().name()),
                    int(interval.getDelayMs(plan.delay())),
                    sources.pop() if len(sources) == 1 else None,
                )
            )
        for child in _items(plan.children()):
            found += self._found_in(child, named)
        return found


def _source_of(leaf: Any, named: list[tuple[str, Any]]) -> str | None:
    reads = {"StreamingExecutionRelation": "source", "StreamingDataSourceV2ScanRelation": "stream"}.get(_class(leaf))
    stream = getattr(leaf, reads)() if reads else None
    return next((name for name, other in named if stream is not None and other.equals(stream)), None)


def _leaves(plan: Any) -> list[Any]:
    children = _items(plan.children())
    return [leaf for child in children for leaf in _leaves(child)] if children else [plan]


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def _pairs(mapping: Any) -> list[tuple[Any, Any]]:
    found, entries = [], mapping.iterator()
    while entries.hasNext():
        pair = entries.next()
        found.append((pair._1(), pair._2()))
    return found
