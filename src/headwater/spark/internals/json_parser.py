"""JSON records parsed from bytes by the parser behind ``from_json``, through ``JsonObjects.java``.

``from_json`` creates an 8 kB reader for each record, which takes longer than parsing a short one.

Seen on: PySpark 4.0.5, 4.1.4, 4.2.0, 4.3.0.
Without it (a JVM that another program started does not have the jar): ``decoding`` expresses the same rule with Spark's
own functions, at half the speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.spark.internals.plans import items


def probe(spark: SparkSession) -> bool:
    """Return whether the JVM has the class, and the class parses a record on this Spark. Tried once for each JVM."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return False
    if jvm not in _parses:
        _parses[jvm] = isinstance(jvm.headwater.sql.JsonObjects, JavaClass) and _parses_a_record(spark)
    return _parses[jvm]


_parses: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _parses_a_record(spark: SparkSession) -> bool:
    try:
        schema = StructType().add("n", "integer")
        record = F.lit(bytearray(b'{"n": 1}'))
        frame: Any = spark.range(0).select(
            _parsed(spark, record, schema, {}, allow_trailing_comma=False).alias("record")
        )
        # Evaluated in the driver: a Spark job would take longer than all other probes together.
        (alias,) = items(frame._jdf.queryExecution().analyzed().expressions())
        row = alias.child().eval(None)
        return row is not None and bool(row.getInt(0) == 1)
    except (Py4JError, PySparkException):
        return False


def parsed_objects(
    spark: SparkSession, schema: StructType, options: Mapping[str, str], *, allow_trailing_comma: bool
) -> Column:
    """Return a struct with the schema's fields parsed from the column ``value``; null for a malformed record."""
    octets = F.col("value").cast("binary")
    return _parsed(spark, octets, schema, options, allow_trailing_comma=allow_trailing_comma)


def _parsed(
    spark: SparkSession, octets: Any, schema: StructType, options: Mapping[str, str], *, allow_trailing_comma: bool
) -> Column:
    jvm: Any = spark._jvm
    java_schema = jvm.org.apache.spark.sql.types.StructType.fromJson(schema.json())
    zone = spark.conf.get("spark.sql.session.timeZone")
    parser = jvm.headwater.sql.JsonObjects
    return Column(parser.column(octets._jc, java_schema, {**options}, zone, allow_trailing_comma))
