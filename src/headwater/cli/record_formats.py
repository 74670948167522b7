"""Options of ``produce`` and ``consume`` for records that are not text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.formats.schema import RecordSchema

FORMATS = ("text", "avro", "protobuf")
RecordFormat = Annotated[str, typer.Option("--format", metavar="FORMAT", help="Values: text, avro or protobuf.")]
SchemaFile = Annotated[
    str | None, typer.Option("--schema", metavar="FILE", help="Schema file: .avsc, .proto or a descriptor set.")
]
RegistryUrl = Annotated[
    str | None, typer.Option("--registry", metavar="URL", help="Schema registry; records start with the schema's id.")
]
Subject = Annotated[
    str | None, typer.Option("--subject", metavar="NAME", help="Subject in the registry; default: TOPIC-value.")
]
MessageName = Annotated[str | None, typer.Option("--message", metavar="NAME", help="Protobuf message.")]


def record_schema(
    form: str, topic: str, schema: str | None, registry: str | None, subject: str | None, message: str | None
) -> RecordSchema | None:
    """Return the schema of a topic's records; None for text."""
    if form not in FORMATS or (form == "text" and (schema or registry or subject or message)):
        raise UsageProblem(
            "bad-option",
            f"--format {form} does not exist" if form not in FORMATS else "records of text have no schema",
            evidence={"formats": ", ".join(FORMATS)},
            remedy="--format avro --schema FILE.avsc",
        )
    if form == "text":
        return None
    from headwater.formats.resolving import resolve_schema

    return resolve_schema(
        "avro" if form == "avro" else "protobuf",
        schema,
        registry=registry,
        subject=subject or f"{topic}-value",
        message=message,
    )


def registered(schema: RecordSchema, subject: str) -> RecordSchema:
    """Return the schema of a file with its id in the registry, where it is added if it is new."""
    from dataclasses import replace

    from headwater.formats.registry import registry_at

    if schema.format != "avro":
        raise UsageProblem(
            "bad-option",
            "a Protobuf schema file cannot be registered",
            remedy="register the schema with the registry's own tools, and omit --schema",
        )
    assert schema.registry is not None
    return replace(schema, schema_id=registry_at(schema.registry).register(subject, schema.texts[-1]))


def line_encoder(schema: RecordSchema) -> Callable[[bytes], bytes]:
    """Return a function that encodes a line of JSON."""
    from headwater.formats.resolving import encoder_for

    encoder = encoder_for(schema)

    def encode(line: bytes) -> bytes:
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("the line is not a JSON object")  # noqa: TRY004, TRY301  reported like any invalid line
            return encoder.encode_plain(row)
        except ValueError as error:
            raise UsageProblem(
                "bad-record",
                "an input line cannot be encoded; earlier lines were sent",
                evidence={"line": line.decode(errors="replace")[:200], "reason": error},
                remedy="write each record as a JSON object with the fields of the schema",
            ) from None

    return encode


def record_printer(schema: RecordSchema | None) -> Callable[[bytes | None], tuple[str | None, str | None]]:
    """Return a function that returns a value as text, and why it is malformed if it is."""
    from headwater.kafka.records import text

    if schema is None:
        return lambda value: (text(value), None)
    from headwater.formats.columns import json_of
    from headwater.formats.resolving import decoder_for
    from headwater.formats.schema import MalformedRecord

    decoder = decoder_for(schema)

    def show(value: bytes | None) -> tuple[str | None, str | None]:
        if value is None:
            return None, None
        try:
            return json_of(decoder.decode(value)), None
        except MalformedRecord as error:
            return base64.b64encode(value).decode(), str(error)

    return show
