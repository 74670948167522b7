"""The values with which Spark begins to aggregate: the initial buffer of each aggregate function of a plan.

Seen on: PySpark 4.2.0.
Without it: ``migrate`` needs ``--set`` for every field of an added aggregate.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater.spark.internals.gateway import has_class
from headwater.spark.internals.stored_aggregates import PHYSICAL_AGGREGATION, StoredAggregates

CATALYST = "org.apache.spark.sql.catalyst"
PROJECTION = f"{CATALYST}.expressions.InterpretedUnsafeProjection"
DECLARATIVE = f"{CATALYST}.expressions.aggregate.DeclarativeAggregate"
TYPED = f"{CATALYST}.expressions.aggregate.TypedImperativeAggregate"


@dataclass(frozen=True)
class InitialBuffer:
    """The initial buffer of a function: its schema in Spark's JSON form, and its fields as an UnsafeRow."""

    schema: str
    row: bytes


def probe(spark: SparkSession) -> bool:
    return all(has_class(spark, name) for name in (PHYSICAL_AGGREGATION, PROJECTION, DECLARATIVE, TYPED))


def initial_buffers(spark: SparkSession, frame: DataFrame) -> list[list[InitialBuffer | None]]:
    """Return the buffers of each streaming aggregation of a plan, root first; None for a function without one."""
    root = frame._jdf.queryExecution().analyzed()
    stored, reader = StoredAggregates(spark, root), _Reader(spark)
    return [[reader.buffer(one.function) for one in functions] for functions in stored]


class _Reader:
    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst

    def buffer(self, function: Any) -> InitialBuffer | None:
        """Return the initial buffer of a function; None if it cannot be computed."""
        schema = function.aggBufferSchema()
        with suppress(Py4JError, PySparkException):
            return InitialBuffer(str(schema.json()), bytes(self._row(function, schema).getBytes()))
        return None

    def _row(self, function: Any, schema: Any) -> Any:
        expressions, row = self._catalyst.expressions, self._catalyst.InternalRow.empty()
        kinds = [field.dataType() for field in schema.fields()]
        if self._is(function, DECLARATIVE):
            values = function.initialValues()
        elif self._is(function, TYPED):
            data = function.serialize(function.createAggregationBuffer())
            values = self._sequence([expressions.Literal.create(data, kinds[0])])
        else:
            row = expressions.SpecificInternalRow(schema)
            function.initialize(row)
            values = self._sequence([expressions.BoundReference(*one, True) for one in enumerate(kinds)])
        # Py4J confuses generated projections: their classes have one name and several loaders.
        return expressions.InterpretedUnsafeProjection.createProjection(values).apply(row)

    def _sequence(self, items: list[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()

    def _is(self, function: Any, name: str) -> bool:
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return bool(loader.loadClass(name).isInstance(function))
