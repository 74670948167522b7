"""Raw records to columns. A record that cannot be decoded is counted and never reaches the job's function.

A JSON record is one object. Where the JVM has Headwater's jar, its bytes go directly to the parser behind Spark's
``from_json`` (``internals/json_parser``), which takes half the time; elsewhere the same rule is expressed with Spark's
own functions. ``from_json`` stops after the first value and ignores what follows it. A record whose only closing brace
is its last character has nothing after its object and is parsed as it is. Other records (nested objects, braces in
strings, trailing blanks) are parsed as the only element of an array, which reveals anything that follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Decoding
from headwater.spark.failures import explained
from headwater.spark.internals import json_parser

RECORDS = "_headwater_records"
END_MARK = "headwater: end of record"


def json_by_functions(
    raw: DataFrame, schema: StructType, options: Mapping[str, str], *, keep: Sequence[str], malformed: str
) -> DataFrame:
    """See ``json_records``."""
    text, corrupt = F.col("value").cast("string"), StructField(options["columnNameOfCorruptRecord"], StringType())
    simple, valid, nothing = _ends_with_its_only_brace(text), F.is_valid_utf8(text), F.lit(None)
    plain = F.from_json(text, StructType([*schema.fields, corrupt]), {**options})
    wrapped = F.concat(F.lit(f'{{"{RECORDS}":['), text, F.lit("]}"))
    held = F.from_json(wrapped, StructType([StructField(RECORDS, ArrayType(schema)), corrupt]), {**options})
    # In two steps, because Spark parses again for each use of what it parses in the branch of a "when".
    parsed = raw.select(
        *keep,
        F.when(simple & valid, plain).alias("plain"),
        F.when(simple | ~valid, nothing).when(_leaves_its_array(text, options), nothing).otherwise(held).alias("held"),
    )
    one = F.get(f"held.{RECORDS}", F.lit(0))
    found = F.col("plain").isNotNull() | (F.size(f"held.{RECORDS}").eqNullSafe(F.lit(1)) & one.isNotNull())
    marked = F.col(f"plain.{corrupt.name}").isNotNull() | F.col(f"held.{corrupt.name}").isNotNull()
    fields = [F.coalesce(F.col("plain").getField(name), one.getField(name)).alias(name) for name in schema.fieldNames()]
    return parsed.select(*fields, *keep, (~found | marked).alias(malformed))


def _ends_with_its_only_brace(text: Column) -> Column:
    # Bytes, because Spark counts the characters of a text one by one.
    octets = text.cast("binary")
    all_but_last = F.call_function("substring", octets, F.lit(1), F.octet_length(octets) - 1).cast("string")
    brace = F.lit("}")
    return F.startswith(text, F.lit("{")) & F.endswith(text, brace) & ~F.contains(all_but_last, brace)


def _leaves_its_array(text: Column, options: Mapping[str, str]) -> Column:
    """A record may close the array around it and open another one, behind a bracket that closes and one that opens.

    The few that have those in this order are read once more, as the first of two elements: nothing hides the second.
    """
    opened_again = F.call_function("locate", F.lit("["), text, F.instr(text, "]")) > 0
    array = F.concat(F.lit("["), text, F.lit(f',"{END_MARK}"]'))
    elements = F.from_json(array, "array<string>", {**options})
    alone = (F.coalesce(F.size(elements), F.lit(0)) == 2) & F.get(elements, F.lit(1)).eqNullSafe(F.lit(END_MARK))
    # Spark computes what stands twice behind an "and" for every record; behind a "when" it waits for the condition.
    closed = F.contains(text, F.lit("]"))
    return F.when(closed, F.when(opened_again, ~alone).otherwise(F.lit(False))).otherwise(F.lit(False))


def json_records(
    raw: DataFrame, schema: StructType, options: Mapping[str, str], *, keep: Sequence[str], malformed: str
) -> DataFrame:
    """The schema's fields of each ``value``, what is kept beside it, and the column ``malformed``.

    ``options`` are those of ``from_json`` and name the column of corrupt records.
    """
    if not json_parser.probe(raw.sparkSession):
        return json_by_functions(raw, schema, options, keep=keep, malformed=malformed)
    record = json_parser.parsed_objects(raw.sparkSession, schema, options).alias("record")
    fields = [F.col("record").getField(name).alias(name) for name in schema.fieldNames()]
    return raw.select(*keep, record).select(*fields, *keep, F.col("record").isNull().alias(malformed))


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
