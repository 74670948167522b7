"""Raw records to columns. A record that cannot be decoded is counted and never reaches the job's function.

A JSON record is exactly one object. If the JVM has Headwater's jar, the record's bytes go directly to the parser behind
Spark's ``from_json`` (``internals/json_parser``), which takes half the time. Otherwise the same rule is expressed with
Spark's own functions. ``from_json`` stops after the first value and ignores what follows it. A record whose only
closing brace is its last character has nothing after its object and is parsed as it is. Other records (nested objects,
braces in strings, trailing blanks) are parsed as the only element of an array, which reveals anything that follows.

The option ``allowTrailingComma`` is Headwater's own: one comma may follow the object, as in lines copied from an array.

Avro and Protobuf records are decoded in Python workers (``binary_records``). Raw records are not decoded at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from headwater.core.errors import JobRefused
from headwater.formats.resolving import resolve_schema
from headwater.formats.schema import BINARY_FORMATS, BinaryFormat, RecordSchema
from headwater.jobs.endpoints import KAFKA_COLUMNS, Decoding, Kafka, Source
from headwater.spark.binary_records import decode_records
from headwater.spark.failures import explained
from headwater.spark.internals import json_parser

CORRUPT = "_headwater_corrupt_record"
METRIC = "headwater_source"
MALFORMED = "_headwater_malformed"
KEPT = "_headwater_kept_"
DECODED_FORMATS = ("json", "csv", "text")
RECORDS = "_headwater_records"
END_MARKER = "headwater: end of record"


def parse_schema(spark: SparkSession, decoding: Decoding) -> StructType:  # noqa: ARG001  the session's JVM parses DDL
    """Return the schema as a ``StructType``. An invalid DDL string is refused with Spark's message."""
    schema = decoding.schema
    if schema is None:
        raise JobRefused(
            "no-schema",
            f"{decoding.format} records need a schema",
            remedy='add one to the source: schema="id STRING, amount INT, at TIMESTAMP"',
        )
    if isinstance(schema, StructType):
        return schema
    if not isinstance(schema, str):
        raise JobRefused(
            "bad-schema", f"the schema of {decoding.format} records is not DDL", remedy='schema="id STRING, amount INT"'
        )
    with explained(f"cannot parse the schema {schema!r}"):
        parsed: StructType = StructType.fromDDL(schema)
    return parsed


def metric_of(source: str) -> str:
    """Return the name of the metric that counts the records of a source; a job's only source may have no name."""
    return f"{METRIC}_{source}" if source else METRIC


def with_resolved_schema(source: Source) -> Source:
    """Return a source whose schema no longer depends on a file or on the newest version in a registry."""
    if not isinstance(source, Kafka) or source.format not in BINARY_FORMATS:
        return source
    return replace(source, schema=_resolved(source.decoding))


def _resolved(decoding: Decoding) -> RecordSchema:
    form: BinaryFormat = "avro" if decoding.format == "avro" else "protobuf"
    return resolve_schema(
        form, decoding.schema, registry=decoding.registry, subject=decoding.subject, message=decoding.message
    )


def decode_lines(
    spark: SparkSession, raw: DataFrame, decoding: Decoding, *, keep: Sequence[str] = (), source: str = ""
) -> DataFrame:
    """Decode the string or binary column ``value`` into the schema's columns, and keep the columns ``keep``.

    ``raw`` also has the columns that ``decoding`` keeps or, for raw records, all columns of Kafka. The records are
    counted under the name of the source.
    """
    if decoding.format == "raw":
        return count_records(raw.select(*KAFKA_COLUMNS, *keep), source=source)
    if not decoding.keep:
        return _decode(spark, raw, decoding, keep=keep, source=source)
    # Under other names while the records are decoded, because a record may have fields of the same names.
    kept = {f"{KEPT}{name}": alias for name, alias in decoding.keep}
    columns = [F.col(name).alias(f"{KEPT}{name}") for name, _ in decoding.keep]
    decoded = _decode(spark, raw.select("value", *columns, *keep), decoding, keep=[*kept, *keep], source=source)
    fields = [name for name in decoded.columns if name not in {*kept, *keep}]
    taken = {name.lower() for name in fields}
    for name, alias in decoding.keep:
        if alias.lower() in taken:
            raise _name_taken(name, alias)
        taken.add(alias.lower())
    renamed = [F.col(name).alias(alias) for name, alias in kept.items()]
    return decoded.select(*[F.col(f"`{name}`") for name in fields], *renamed, *keep)


def _name_taken(name: str, alias: str) -> JobRefused:
    return JobRefused(
        "column-twice",
        f"the records have a field {alias}, so the column of Kafka needs another name",
        remedy=f'keep=("{name}:kafka_{name}",)',
    )


def _decode(spark: SparkSession, raw: DataFrame, decoding: Decoding, *, keep: Sequence[str], source: str) -> DataFrame:
    text = F.col("value").cast("string")
    match decoding.format:
        case "avro" | "protobuf":
            binary = raw.select(F.col("value").cast("binary").alias("value"), *keep)
            decoded = decode_records(binary, _resolved(decoding), keep=keep, malformed=MALFORMED)
            return _counted(decoded, F.col(MALFORMED), source).drop(MALFORMED)
        case "text":
            lines = raw.select(text.alias("value"), *keep)
            unreadable = F.col("value").isNull() | ~F.is_valid_utf8("value")
            return _counted(lines, unreadable, source).withColumnRenamed("value", _text_column(spark, decoding))
        case "json" | None:
            schema, options = parse_schema(spark, decoding), _parser_options(decoding.options)
            # Flattened before they are counted: Spark copies each row there, and would copy nested fields twice.
            flat = _json_records(raw, schema, options, keep=keep)
            return _counted(flat, F.col(MALFORMED), source).drop(MALFORMED)
        case "csv":
            schema = _with_corrupt_column(parse_schema(spark, decoding))
            record = F.from_csv(text, _ddl(schema), _parser_options(decoding.options))
            unparsable = (F.trim(text) == "") | ~F.is_valid_utf8(text)
            parsed = raw.select(*keep, record.alias("record"), unparsable.alias("unparsable"))
            malformed = F.col("record").isNull() | F.col(f"record.{CORRUPT}").isNotNull() | F.col("unparsable")
            return _counted(parsed, malformed, source).select("record.*", *keep).drop(CORRUPT)
        case _:
            raise JobRefused(
                "record-format",
                f"cannot decode records as {decoding.format!r}",
                evidence={"supported": ", ".join(DECODED_FORMATS)},
                remedy='format="json"',
            )


def read_parsed_files(
    reader: DataStreamReader, path: str, schema: StructType, options: Mapping[str, str], *, source: str = ""
) -> DataFrame:
    """Read files whose records are not lines. Spark's own reader finds the records and marks the malformed ones."""
    frame = reader.schema(_with_corrupt_column(schema)).options(**_parser_options(options)).load(path)
    # Spark refuses a query that uses the column of corrupt records alone.
    first_column = F.count(F.col(f"`{schema.fieldNames()[0]}`")).alias("first_column")
    return _counted(frame, F.col(CORRUPT).isNotNull(), source, first_column).drop(CORRUPT)


def count_records(frame: DataFrame, *, source: str = "") -> DataFrame:
    """Count the records of a source that has no malformed ones."""
    return _counted(frame, F.lit(False), source)


def _counted(frame: DataFrame, malformed: Column, source: str, *more: Column) -> DataFrame:
    records, bad = F.count(F.lit(1)).alias("records"), F.count_if(malformed).alias("malformed")
    return frame.observe(metric_of(source), records, bad, *more).where(~malformed)


def _with_corrupt_column(schema: StructType) -> StructType:
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def _parser_options(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the job's options, with those that mark a malformed record whichever columns the job uses."""
    return {**chosen, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "columnPruning": "false"}


def _text_column(spark: SparkSession, decoding: Decoding) -> str:
    if decoding.schema is None:
        return "value"
    fields = parse_schema(spark, decoding).fields
    if len(fields) != 1 or not isinstance(fields[0].dataType, StringType):
        raise JobRefused(
            "text-schema",
            "text records have a single string column",
            evidence={"schema": decoding.schema},
            remedy='schema="line STRING", or format="json" or "csv"',
        )
    return str(fields[0].name)


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


def _json_records(raw: DataFrame, schema: StructType, options: Mapping[str, str], *, keep: Sequence[str]) -> DataFrame:
    """Return the schema's fields of each ``value``, the columns ``keep``, and the column ``MALFORMED``."""
    if not json_parser.probe(raw.sparkSession):
        return _json_with_functions(raw, schema, options, keep=keep)
    allow_trailing_comma = _allows_trailing_comma(options)
    record = json_parser.parsed_objects(
        raw.sparkSession, schema, options, allow_trailing_comma=allow_trailing_comma
    ).alias("record")
    fields = [F.col("record").getField(name).alias(name) for name in schema.fieldNames()]
    return raw.select(*keep, record).select(*fields, *keep, F.col("record").isNull().alias(MALFORMED))


def _json_with_functions(
    raw: DataFrame, schema: StructType, options: Mapping[str, str], *, keep: Sequence[str]
) -> DataFrame:
    """Do the work of ``_json_records`` with public functions only."""
    if _allows_trailing_comma(options):
        raw = _without_trailing_comma(raw, keep=keep)
    text, corrupt = F.col("value").cast("string"), StructField(CORRUPT, StringType())
    simple, valid, null = _ends_with_its_only_brace(text), F.is_valid_utf8(text), F.lit(None)
    plain = F.from_json(text, StructType([*schema.fields, corrupt]), {**options})
    array = F.concat(F.lit(f'{{"{RECORDS}":['), text, F.lit("]}"))
    wrapped = F.from_json(array, StructType([StructField(RECORDS, ArrayType(schema)), corrupt]), {**options})
    # In two steps: Spark parses again at each use of a column that it parses in a branch of "when".
    parsed = raw.select(
        *keep,
        F.when(simple & valid, plain).alias("plain"),
        F.when(simple | ~valid, null).when(_leaves_its_array(text, options), null).otherwise(wrapped).alias("wrapped"),
    )
    element = F.get(f"wrapped.{RECORDS}", F.lit(0))
    single = F.size(f"wrapped.{RECORDS}").eqNullSafe(F.lit(1)) & element.isNotNull()
    is_object = F.col("plain").isNotNull() | single
    is_corrupt = F.col(f"plain.{CORRUPT}").isNotNull() | F.col(f"wrapped.{CORRUPT}").isNotNull()
    fields = [
        F.coalesce(F.col("plain").getField(name), element.getField(name)).alias(name) for name in schema.fieldNames()
    ]
    return parsed.select(*fields, *keep, (~is_object | is_corrupt).alias(MALFORMED))


def _allows_trailing_comma(options: Mapping[str, str]) -> bool:
    chosen = {name.lower(): value.lower() for name, value in options.items()}
    return chosen.get("allowtrailingcomma") == "true"


def _without_trailing_comma(raw: DataFrame, *, keep: Sequence[str]) -> DataFrame:
    text = F.col("value").cast("string")
    # Checked first: regexp_replace would replace invalid bytes, and the record would then pass for valid.
    valid = F.when(F.is_valid_utf8(text), F.regexp_replace(text, r",[ \t\r\n]*\z", ""))
    return raw.select(valid.alias("value"), *keep)


def _ends_with_its_only_brace(text: Column) -> Column:
    # On bytes: Spark counts the characters of a string one by one.
    octets = text.cast("binary")
    all_but_last = F.call_function("substring", octets, F.lit(1), F.octet_length(octets) - 1).cast("string")
    brace = F.lit("}")
    return F.startswith(text, F.lit("{")) & F.endswith(text, brace) & ~F.contains(all_but_last, brace)


def _leaves_its_array(text: Column, options: Mapping[str, str]) -> Column:
    """Return whether a record closes the array around it and opens another one.

    Such a record has a closing bracket followed by an opening one. The few records that do are parsed once more, as the
    first of two elements: if the second is not the marker, the record left its array.
    """
    opened_again = F.call_function("locate", F.lit("["), text, F.instr(text, "]")) > 0
    array = F.concat(F.lit("["), text, F.lit(f',"{END_MARKER}"]'))
    elements = F.from_json(array, "array<string>", {**options})
    alone = (F.coalesce(F.size(elements), F.lit(0)) == 2) & F.get(elements, F.lit(1)).eqNullSafe(F.lit(END_MARKER))
    # Spark evaluates an expression that occurs twice after an "and" for every record; inside a "when" it does not.
    closed = F.contains(text, F.lit("]"))
    return F.when(closed, F.when(opened_again, ~alone).otherwise(F.lit(False))).otherwise(F.lit(False))
