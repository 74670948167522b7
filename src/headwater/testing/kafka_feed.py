"""Kafka records in the lines of a scenario's inbox.

A source whose records are more than lines of text (raw, Avro and Protobuf records, columns of Kafka that are kept) is fed
whole records: each line is a JSON object with the columns of Kafka, bytes as base64. The job decodes the same bytes as
from a topic.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.formats.resolving import encoder_for
from headwater.formats.schema import BINARY_FORMATS, RecordSchema
from headwater.jobs.endpoints import KAFKA_COLUMNS, Decoding, Kafka
from headwater.spark.decoding import decode_lines, with_resolved_schema

if TYPE_CHECKING:
    from headwater.jobs.endpoints import Schema

RECORD = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def _defaults() -> dict[str, Column]:
    """Return the columns of Kafka with the values that a fed record has in them if it has none of its own."""
    chosen = {
        "topic": F.lit("scenario"),
        "partition": F.lit(0),
        "offset": F.lit(0).cast("bigint"),
        "timestamp": F.lit("2000-01-01T00:00:00Z").cast("timestamp"),
    }
    return {name: chosen.get(name, F.lit(None)) for name in KAFKA_COLUMNS}


def kafka_decoding(source: Kafka, schema: str | None) -> Decoding:
    """Return how the fed records of a topic are decoded. A schema file replaces the registry, which need not run."""
    decoding = source.decoding
    resolved: Schema = schema or decoding.schema
    if decoding.format in BINARY_FORMATS:
        fed = replace(source, schema=resolved, registry=None if resolved else source.registry)
        resolved = with_resolved_schema(fed).decoding.schema
    return Decoding(resolved, decoding.format or "json", decoding.options, keep=decoding.keep)


def feeds_records(decoding: Decoding) -> bool:
    """Return whether a source is fed whole records instead of lines."""
    return bool(decoding.keep) or decoding.format in ("raw", *BINARY_FORMATS)


def decode_fed(
    spark: SparkSession, lines: DataFrame, decoding: Decoding, *, keep: Sequence[str] = (), source: str = ""
) -> DataFrame:
    """Return the fed lines, or the records in them, as the job's function receives them."""
    if feeds_records(decoding):
        record = lines.select(F.from_json("value", RECORD).alias("record"), *keep)
        columns = [F.coalesce(F.col(f"record.{name}"), value).alias(name) for name, value in _defaults().items()]
        lines = record.select(*columns, *keep)
    return decode_lines(spark, lines, decoding, keep=keep, source=source)


def record_line(item: Any, decoding: Decoding, encode_text: Callable[[Mapping[str, Any]], str]) -> str:
    """Return the line of one fed record: bytes or text as its value, or a row with the columns of the job's function."""
    if not isinstance(item, Mapping):
        columns: dict[str, Any] = {"value": item}
    elif decoding.format == "raw":
        unknown = [name for name in item if name not in KAFKA_COLUMNS]
        if unknown:
            raise ValueError(f"a raw record has no column {unknown[0]!r}, only {', '.join(KAFKA_COLUMNS)}")
        columns = dict(item)
    else:
        kept = {alias: name for name, alias in decoding.keep}
        columns = {kept[name]: value for name, value in item.items() if name in kept}
        columns["value"] = _value(
            {name: part for name, part in item.items() if name not in kept}, decoding, encode_text
        )
    record = {
        **columns,
        "key": _base64(columns.get("key")),
        "value": _base64(columns.get("value")),
        "timestamp": _iso(columns.get("timestamp")),
        "headers": _headers(columns.get("headers")),
    }
    given = {name: value for name, value in record.items() if value is not None}
    return json.dumps({"fed": item, **given}, default=_readable, ensure_ascii=False)


def _value(row: Mapping[str, Any], decoding: Decoding, encode_text: Callable[[Mapping[str, Any]], str]) -> bytes:
    if isinstance(decoding.schema, RecordSchema):
        return encoder_for(decoding.schema).encode_plain(row)
    return encode_text(row).encode()


def _headers(headers: Any) -> list[dict[str, Any]] | None:
    if headers is None:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [{"key": key, "value": _base64(value)} for key, value in pairs]


def _base64(value: Any) -> str | None:
    if value is None:
        return None
    return base64.b64encode(value if isinstance(value, bytes) else str(value).encode()).decode()


def _iso(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _readable(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else repr(value)
