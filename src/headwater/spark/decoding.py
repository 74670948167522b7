"""Raw records to columns. What does not decode is counted and kept away from the job's function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import StringType, StructField, StructType

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Decoding
from headwater.spark.failures import explained
from headwater.spark.json_records import json_records

CORRUPT = "_headwater_corrupt_record"
METRIC = "headwater_source"
MALFORMED = "_headwater_malformed"
DECODED_FORMATS = ("json", "csv", "text")


def parse_schema(spark: SparkSession, decoding: Decoding) -> StructType:  # noqa: ARG001  DDL is read by the session's JVM
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
    with explained(f"the schema {schema!r} cannot be read"):
        parsed: StructType = StructType.fromDDL(schema)
    return parsed


def decode_lines(spark: SparkSession, raw: DataFrame, decoding: Decoding, *, keep: Sequence[str] = ()) -> DataFrame:
    """A frame with a string (or binary) column ``value`` becomes the columns of the schema, and those of ``keep``."""
    text = F.col("value").cast("string")
    match decoding.format:
        case "text":
            lines = raw.select(text.alias("value"), *keep)
            unreadable = F.col("value").isNull() | ~F.is_valid_utf8("value")
            return _counted(lines, unreadable).withColumnRenamed("value", _text_column(spark, decoding))
        case "json" | None:
            schema, options = parse_schema(spark, decoding), _parser_options(decoding.options)
            # Flat before they are counted: there Spark writes each row down, and nested ones would be written twice.
            flat = json_records(raw, schema, options, keep=keep, malformed=MALFORMED)
            return _counted(flat, F.col(MALFORMED)).drop(MALFORMED)
        case "csv":
            record = F.from_csv(text, _ddl(_marked(parse_schema(spark, decoding))), _parser_options(decoding.options))
            spoilt = F.trim(text) == ""
        case _:
            raise JobRefused(
                "record-format",
                f"records cannot be decoded as {decoding.format!r}",
                evidence={"known": ", ".join(DECODED_FORMATS)},
                remedy='format="json"',
            )
    spoilt = spoilt | ~F.is_valid_utf8(text)
    parsed = raw.select(*keep, record.alias("record"), spoilt.alias("spoilt"))
    malformed = F.col("record").isNull() | F.col(f"record.{CORRUPT}").isNotNull() | F.col("spoilt")
    return _counted(parsed, malformed).select("record.*", *keep).drop(CORRUPT)


def read_marked(reader: DataStreamReader, path: str, schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """Files whose records Spark's own reader has to find, because they are not lines: it marks the bad ones."""
    marked = reader.schema(_marked(schema)).options(**_parser_options(options)).load(path)
    # Spark refuses to read the mark alone, so one real column is looked at as well.
    witness = F.count(F.col(f"`{schema.fieldNames()[0]}`")).alias("first_column")
    return _counted(marked, F.col(CORRUPT).isNotNull(), witness).drop(CORRUPT)


def count_all(frame: DataFrame) -> DataFrame:
    """For sources whose records cannot be malformed."""
    return _counted(frame, F.lit(False))


def _counted(frame: DataFrame, malformed: Column, *more: Column) -> DataFrame:
    records, bad = F.count(F.lit(1)).alias("records"), F.count_if(malformed).alias("malformed")
    return frame.observe(METRIC, records, bad, *more).where(~malformed)


def _marked(schema: StructType) -> StructType:
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def _parser_options(chosen: Mapping[str, str]) -> dict[str, str]:
    """Whatever a job chooses, a bad record is marked, and which columns are used later does not change what is bad."""
    return {**chosen, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "columnPruning": "false"}


def _text_column(spark: SparkSession, decoding: Decoding) -> str:
    if decoding.schema is None:
        return "value"
    fields = parse_schema(spark, decoding).fields
    if len(fields) != 1 or not isinstance(fields[0].dataType, StringType):
        raise JobRefused(
            "text-schema",
            "text records have one string column",
            evidence={"schema": decoding.schema},
            remedy='schema="line STRING", or format="json" or "csv"',
        )
    return str(fields[0].name)


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
