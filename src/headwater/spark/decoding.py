"""Raw records to columns. What does not decode is counted and kept away from the job's function."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Decoding

CORRUPT = "_headwater_corrupt_record"
METRIC = "headwater_source"
DECODED_FORMATS = ("json", "csv", "text")


def parse_schema(spark: SparkSession, decoding: Decoding) -> StructType:
    """The schema as a ``StructType``; a DDL string with a mistake is refused with Spark's own words."""
    schema = decoding.schema
    if schema is None:
        raise JobRefused(
            "no-schema",
            f"{decoding.format} records need a schema",
            remedy='give the source one: schema="id STRING, amount INT, at TIMESTAMP"',
        )
    if isinstance(schema, StructType):
        return schema
    from headwater.spark.failures import explained  # noqa: PLC0415  failures also explains what decoding refuses

    with explained("the schema cannot be read"):
        parsed = (
            StructType.fromDDL(schema) if hasattr(StructType, "fromDDL") else spark.createDataFrame([], schema).schema
        )
    return parsed


def decode_lines(spark: SparkSession, raw: DataFrame, decoding: Decoding, *, keep: Sequence[str] = ()) -> DataFrame:
    """A frame with a string (or binary) column ``value`` becomes the columns of the schema, and those of ``keep``."""
    if decoding.format == "text":
        return _counted_text(spark, raw, decoding, keep)
    schema = parse_schema(spark, decoding).add(CORRUPT, StringType())
    parse = {"json": F.from_json, "csv": F.from_csv}[decoding.format or "json"]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **decoding.options}
    text = F.col("value").cast("string")
    wanted = schema if decoding.format == "json" else _ddl(schema)
    parsed = raw.select(*keep, parse(text, wanted, options).alias("record"))
    malformed = F.col("record").isNull() | F.col(f"record.{CORRUPT}").isNotNull()
    return _counted(parsed, malformed).select("record.*", *keep).drop(CORRUPT)


def keep_well_formed(frame: DataFrame, witness: str) -> DataFrame:
    """For readers that mark bad records themselves. ``witness`` is any real column: Spark will not read the mark alone."""
    return _counted(frame, F.col(CORRUPT).isNotNull(), witness).drop(CORRUPT)


def _counted(frame: DataFrame, malformed: Column, witness: str | None = None) -> DataFrame:
    counts = [F.count(F.lit(1)).alias("records"), F.count_if(malformed).alias("malformed")]
    if witness:
        counts.append(F.count(F.col(witness)).alias("witness"))
    return frame.observe(METRIC, *counts).where(~malformed)


def _counted_text(spark: SparkSession, raw: DataFrame, decoding: Decoding, keep: Sequence[str]) -> DataFrame:
    text = _counted(raw.select(F.col("value").cast("string").alias("value"), *keep), F.col("value").isNull())
    if decoding.schema is None:
        return text
    fields = parse_schema(spark, decoding).fields
    if len(fields) != 1 or not isinstance(fields[0].dataType, StringType):
        raise JobRefused(
            "text-schema",
            "text records have one string column",
            evidence={"schema": decoding.schema},
            remedy='schema="line STRING", or format="json" or "csv"',
        )
    return text.withColumnRenamed("value", fields[0].name)


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
