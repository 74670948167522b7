"""One JSON object a record: its fields, and whether it is one.

Where the JVM has our jar, the bytes go straight to the parser behind Spark's ``from_json`` (``JsonObjects.java``): half
the time. In a JVM that others started the same is said with Spark's own functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.spark.json_by_functions import json_by_functions


def json_records(
    raw: DataFrame, schema: StructType, options: Mapping[str, str], *, keep: Sequence[str], malformed: str
) -> DataFrame:
    """The schema's fields of each ``value``, what is kept beside it, and the column ``malformed``.

    ``options`` are those of ``from_json`` and name the column of corrupt records.
    """
    reader = own_reader(raw.sparkSession)
    if reader is None:
        return json_by_functions(raw, schema, options, keep=keep, malformed=malformed)
    record = _read_by(reader, raw.sparkSession, schema, options).alias("record")
    fields = [F.col("record").getField(name).alias(name) for name in schema.fieldNames()]
    return raw.select(*keep, record).select(*fields, *keep, F.col("record").isNull().alias(malformed))


def own_reader(spark: SparkSession) -> JavaClass | None:
    """Our class in the session's JVM, if it is there."""
    jvm: Any = spark._jvm
    found = jvm.headwater.sql.JsonObjects
    return found if isinstance(found, JavaClass) else None


def _read_by(reader: Any, spark: SparkSession, schema: StructType, options: Mapping[str, str]) -> Column:
    jvm: Any = spark._jvm
    wanted = jvm.org.apache.spark.sql.types.StructType.fromJson(schema.json())
    octets: Any = F.col("value").cast("binary")
    return Column(reader.column(octets._jc, wanted, {**options}, spark.conf.get("spark.sql.session.timeZone")))
