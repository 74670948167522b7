"""JSON records parsed from bytes by the parser behind ``from_json``, through ``JsonObjects.java``.

``from_json`` creates an 8 kB reader for each record, which takes longer than parsing a short one.

Seen on: PySpark 4.2.0.
Without it (a JVM that another program started does not have the jar): ``decoding`` expresses the same rule with Spark's
own functions, at half the speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


def probe(spark: SparkSession) -> bool:
    jvm: Any = getattr(spark, "_jvm", None)
    return jvm is not None and isinstance(jvm.headwater.sql.JsonObjects, JavaClass)


def parsed_objects(
    spark: SparkSession, schema: StructType, options: Mapping[str, str], *, allow_trailing_comma: bool
) -> Column:
    """Return a struct with the schema's fields parsed from the column ``value``; null for a malformed record."""
    jvm: Any = spark._jvm
    java_schema = jvm.org.apache.spark.sql.types.StructType.fromJson(schema.json())
    octets: Any = F.col("value").cast("binary")
    zone = spark.conf.get("spark.sql.session.timeZone")
    parser = jvm.headwater.sql.JsonObjects
    return Column(parser.column(octets._jc, java_schema, {**options}, zone, allow_trailing_comma))
