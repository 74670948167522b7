"""Sources as streaming DataFrames of decoded and counted records."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import Decoding, Delta, Files, Iceberg, Kafka, Rate, Socket, Source, Table
from headwater.jobs.job import Frames, Job
from headwater.jobs.kafka_rules import check_kafka_source
from headwater.kafka.options import Connection
from headwater.spark.decoding import count_records, decode_lines, parse_schema, read_parsed_files
from headwater.spark.delta import location as delta_location
from headwater.spark.failures import explained
from headwater.spark.static_tables import StaticTables
from headwater.spark.table_formats import require_format
from headwater.spark.tables import require_table

# If on, Spark's logs name the sources; see spark/source_names.py.
NAMING = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def read_inputs(spark: SparkSession, job: Job, tables: Frames | None = None) -> dict[str, DataFrame]:
    """Return the DataFrames that the job's function receives, by name. No query starts.

    ``tables`` are static tables that have been read already.
    """
    streams = {name: read_stream(spark, source, name) for name, source in job.sources.items()}
    return {**streams, **StaticTables(spark, job, tables).frames}


def read_stream(spark: SparkSession, source: Source, name: str = "") -> DataFrame:
    """Return the stream of a source, whose records are decoded, and counted under its name."""
    with explained(f"cannot read {f'{name} ' if name else ''}from {source.kind}"):
        match source:
            case Kafka():
                return _kafka(spark, source, name)
            case Files():
                return _files(spark, source, name)
            case Socket():
                return _socket(spark, source, name)
            case Rate():
                return _rate(spark, source, name)
            case Table():
                return _table(spark, source, name)
            case Delta():
                return _delta(spark, source, name)
            case Iceberg():
                return _iceberg(spark, source, name)


def _reader(spark: SparkSession, name: str) -> DataStreamReader:
    """Return a reader of a source, which has its name in Spark as well if the session names sources."""
    if name and spark.conf.get(NAMING, "false") == "true":
        return spark.readStream.name(name)
    return spark.readStream


CONSUMER_OPTIONS = {
    # A batch reads records that already exist. Spark then queries the topic's end offsets on the same connection, where
    # the consumer's next fetch may be waiting for new records: by default for up to half a second.
    "kafka.fetch.max.wait.ms": "1",
    # By default Spark polls 500 records at a time, and its work around each poll takes a third of a batch.
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
}


def _kafka(spark: SparkSession, source: Kafka, name: str) -> DataFrame:
    check_kafka_source(source)
    defaults = {"startingOffsets": "earliest", "kafka.bootstrap.servers": source.servers, **CONSUMER_OPTIONS}
    options = {**defaults, **source.options, **Connection(source.servers, source.options).spark_options()}
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribe"] = source.topic
    if reads_headers(source):
        options["includeHeaders"] = "true"
    raw = _reader(spark, name).format("kafka").options(**options).load()
    return decode_lines(spark, raw, source.decoding, source=name)


def reads_headers(source: Kafka) -> bool:
    """Return whether the job's function receives the headers of records, which Spark reads only on request."""
    return source.format == "raw" or any(name == "headers" for name, _ in source.kept_columns)


def _files(spark: SparkSession, source: Files, name: str) -> DataFrame:
    format_name = source.format or "json"
    reader = _reader(spark, name).options(**source.options)
    decoding = Decoding(source.schema, format_name, source.decode)
    if format_name == "csv" or (format_name == "json" and _is_multiline(source)):
        schema = parse_schema(spark, decoding)
        return read_parsed_files(reader.format(format_name), source.path, schema, source.decode, source=name)
    if format_name in {"json", "text"}:
        # Read as lines, so that a record means the same as in Kafka and can be found again by its line number.
        return decode_lines(spark, reader.format("text").load(source.path), decoding, source=name)
    schema = (
        spark.read.format(format_name).load(source.path).schema
        if source.schema is None
        else parse_schema(spark, decoding)
    )
    return count_records(reader.format(format_name).schema(schema).load(source.path), source=name)


def _is_multiline(source: Files) -> bool:
    chosen = {name.lower(): value.lower() for name, value in {**source.options, **source.decode}.items()}
    return chosen.get("multiline") == "true"


def _socket(spark: SparkSession, source: Socket, name: str) -> DataFrame:
    raw = (
        _reader(spark, name).format("socket").options(host=source.host, port=str(source.port), **source.options).load()
    )
    return decode_lines(spark, raw, source.decoding, source=name)


def _rate(spark: SparkSession, source: Rate, name: str) -> DataFrame:
    options = {"rowsPerSecond": str(source.rows_per_second), **source.options}
    return count_records(_reader(spark, name).format("rate").options(**options).load(), source=name)


def _table(spark: SparkSession, source: Table, name: str) -> DataFrame:
    require_table(spark, source)
    return count_records(_reader(spark, name).options(**source.options).table(source.name), source=name)


def _delta(spark: SparkSession, source: Delta, name: str) -> DataFrame:
    require_format(spark, source)
    rows = _reader(spark, name).format("delta").options(**source.options).load(delta_location(source))
    return count_records(rows, source=name)


def _iceberg(spark: SparkSession, source: Iceberg, name: str) -> DataFrame:
    require_format(spark, source)
    rows = _reader(spark, name).format("iceberg").options(**source.options).load(source.table)
    return count_records(rows, source=name)


def require_columns(frame: DataFrame, names: tuple[str, ...], purpose: str) -> None:
    """Refuse a job whose result lacks one of the columns."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise JobRefused(
            "unknown-column",
            f"{purpose} names a column that the job's result does not have: {', '.join(missing)}",
            evidence={"columns": ", ".join(frame.columns)},
            remedy="name one of these columns",
        )
