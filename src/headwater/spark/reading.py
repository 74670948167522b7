"""Sources brought to life: a streaming DataFrame of decoded, counted records."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.jobs.endpoints import Decoding, Files, Kafka, Rate, Socket, Source, Table
from headwater.spark.decoding import count_all, decode_lines, parse_schema, read_marked
from headwater.spark.failures import explained
from headwater.spark.tables import register_table


def read_stream(spark: SparkSession, source: Source) -> DataFrame:
    """The source as the job's function sees it. Nothing starts yet."""
    with explained(f"{source.kind} cannot be read"):
        match source:
            case Kafka():
                return _kafka(spark, source)
            case Files():
                return _files(spark, source)
            case Socket():
                return _socket(spark, source)
            case Rate():
                return _rate(spark, source)
            case Table():
                return _table(spark, source)


CONSUMER = {
    # A batch reads what is there already. Spark then asks for the topic's bounds, on a connection on which the consumer's
    # next fetch is being kept waiting for records to come: by default for up to half a second.
    "kafka.fetch.max.wait.ms": "1",
    # Spark polls for 500 records at a time by default, and what it does around each poll takes a third of a batch.
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
}


def _kafka(spark: SparkSession, source: Kafka) -> DataFrame:
    bare = {"startingOffsets": "earliest", "kafka.bootstrap.servers": source.servers}
    options = {**bare, **CONSUMER, **source.options}
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribe"] = source.topic
    raw = spark.readStream.format("kafka").options(**options).load()
    return decode_lines(spark, raw, source.decoding)


def _files(spark: SparkSession, source: Files) -> DataFrame:
    format_name = source.format or "json"
    reader = spark.readStream.options(**source.options)
    decoding = Decoding(source.schema, format_name, source.decode)
    if format_name == "csv" or (format_name == "json" and _is_multiline(source)):
        return read_marked(reader.format(format_name), source.path, parse_schema(spark, decoding), source.decode)
    if format_name in {"json", "text"}:
        # Read as lines, so that a record is the same thing here as in Kafka and can be found again by its line.
        return decode_lines(spark, reader.format("text").load(source.path), decoding)
    schema = (
        spark.read.format(format_name).load(source.path).schema
        if source.schema is None
        else parse_schema(spark, decoding)
    )
    return count_all(reader.format(format_name).schema(schema).load(source.path))


def _is_multiline(source: Files) -> bool:
    chosen = {name.lower(): value.lower() for name, value in {**source.options, **source.decode}.items()}
    return chosen.get("multiline") == "true"


def _socket(spark: SparkSession, source: Socket) -> DataFrame:
    raw = spark.readStream.format("socket").options(host=source.host, port=str(source.port), **source.options).load()
    return decode_lines(spark, raw, source.decoding)


def _rate(spark: SparkSession, source: Rate) -> DataFrame:
    options = {"rowsPerSecond": str(source.rows_per_second), **source.options}
    return count_all(spark.readStream.format("rate").options(**options).load())


def _table(spark: SparkSession, source: Table) -> DataFrame:
    register_table(spark, source)
    if not spark.catalog.tableExists(source.name):
        raise ServiceUnreachable(
            "no-table",
            f"there is no table {source.name}",
            evidence={"warehouse": spark.conf.get("spark.sql.warehouse.dir")},
            remedy=f"headwater run JOB --sink table:{source.name}   (fills one)",
        )
    return count_all(spark.readStream.options(**source.options).table(source.name))


def require_columns(frame: DataFrame, names: tuple[str, ...], purpose: str) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise JobRefused(
            "unknown-column",
            f"{purpose} names a column that the job does not give: {', '.join(missing)}",
            evidence={"columns": ", ".join(frame.columns)},
            remedy="name one of these",
        )
