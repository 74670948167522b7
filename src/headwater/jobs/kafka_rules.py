"""Checks on the record format of a topic that need neither Spark nor a service."""

from __future__ import annotations

from headwater.core.errors import JobRefused
from headwater.jobs.endpoints import KAFKA_COLUMNS, KAFKA_FORMATS, Kafka

WITH_SCHEMA = ("avro", "protobuf")
SINK_FORMATS = ("json", "avro", "raw")
KEPT = tuple(name for name in KAFKA_COLUMNS if name != "value")


def check_kafka_source(source: Kafka) -> None:
    """Refuse a source whose options contradict its record format."""
    if source.format not in KAFKA_FORMATS:
        raise _unknown_format("read", source.format, KAFKA_FORMATS)
    _check_registry(source)
    if source.message and source.format != "protobuf":
        raise JobRefused("record-format", "only Protobuf records have a message", remedy='format="protobuf"')
    if source.headers:
        raise JobRefused(
            "record-format",
            "headers names a column that a sink writes; a source adds the headers of its records with keep",
            remedy='keep=("headers",)',
        )
    if source.keep and source.format == "raw":
        raise JobRefused(
            "record-format", "raw records have all columns of Kafka", remedy='omit keep, or decode: format="json"'
        )
    unknown = [name for name, _ in source.kept_columns if name not in KEPT]
    if unknown:
        raise JobRefused(
            "record-format",
            f"{unknown[0]!r} is not a column of Kafka that can be kept",
            evidence={"columns": ", ".join(KEPT)},
            remedy='keep=("key", "timestamp:sent_at")',
        )


def check_kafka_sink(sink: Kafka) -> None:
    """Refuse a sink whose options contradict its record format."""
    if sink.format not in SINK_FORMATS:
        raise _unknown_format("write", sink.format, SINK_FORMATS)
    _check_registry(sink)
    if sink.format == "avro" and sink.schema is None and sink.registry is None:
        raise JobRefused(
            "no-schema",
            "an Avro sink needs a schema file or a schema registry, so that its records can be read",
            remedy='schema="FILE.avsc" or registry="http://127.0.0.1:8081"',
        )
    if sink.keep or sink.message:
        raise JobRefused("record-format", "keep and message are options of a source, not of a sink", remedy="omit them")
    if sink.format == "raw" and (sink.key or sink.headers):
        raise JobRefused(
            "record-format",
            "raw records take their key and headers from the columns key and headers",
            remedy='omit key and headers, or encode: format="json"',
        )


def _check_registry(endpoint: Kafka) -> None:
    used = [name for name in ("registry", "subject") if getattr(endpoint, name)]
    if used and endpoint.format not in WITH_SCHEMA:
        raise JobRefused(
            "record-format",
            f"{endpoint.format} records do not use a schema registry",
            evidence={"option": used[0]},
            remedy='format="avro" or "protobuf", or omit the option',
        )


def _unknown_format(verb: str, form: str, known: tuple[str, ...]) -> JobRefused:
    return JobRefused(
        "record-format",
        f"cannot {verb} Kafka records as {form!r}",
        evidence={"supported": ", ".join(known)},
        remedy='format="json"',
    )
