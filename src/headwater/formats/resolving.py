"""Where the schema of a source or sink comes from: a file, the source itself, or the newest version in a registry."""

from __future__ import annotations

from pathlib import Path

from headwater.core.errors import JobRefused
from headwater.formats.avro import AvroDecoder, AvroEncoder, ParsedAvro, require_fastavro, row_type
from headwater.formats.columns import Decoder
from headwater.formats.proto_files import compile_file, compile_texts, find_message
from headwater.formats.protobuf import ProtobufDecoder, ProtobufEncoder
from headwater.formats.registry import RegisteredSchema, SchemaNotFound, complete_login, registry_at
from headwater.formats.schema import BinaryFormat, RecordSchema

KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF"}


def resolve_schema(
    form: BinaryFormat,
    schema: object,
    *,
    registry: str | None = None,
    subject: str | None = None,
    message: str | None = None,
) -> RecordSchema:
    """Return the complete schema of records; raise if it is missing, invalid or cannot be looked up.

    ``schema`` is a file, an Avro schema as text, or None for the newest version of the subject.
    """
    if isinstance(schema, RecordSchema):
        return schema
    url = complete_login(registry) if registry else None
    if schema is not None:
        resolved = _from_text(form, schema, message, url)
        if url and subject:
            _require_answer(url, subject)
    elif url is None or not subject:
        raise _no_schema(form, has_registry=url is not None)
    else:
        resolved = _from_registry(form, registry_at(url).latest(subject), message, url, subject)
    if not decoder_for(resolved).row_type.columns:
        raise JobRefused("bad-schema", f"the {form} schema has no fields", remedy="give a schema with fields")
    return resolved


def decoder_for(schema: RecordSchema, *, in_batch: bool = False) -> Decoder:
    """Return a decoder; a schema that Spark has no types for is refused. ``in_batch`` retries a registry for longer."""
    if schema.format == "avro":
        return AvroDecoder(schema, in_batch=in_batch)
    return ProtobufDecoder(schema, in_batch=in_batch)


def encoder_for(schema: RecordSchema) -> AvroEncoder | ProtobufEncoder:
    """Return an encoder for the rows of a test."""
    return AvroEncoder(schema) if schema.format == "avro" else ProtobufEncoder(schema)


def read_avro_text(schema: str) -> str:
    """Return an Avro schema: the text itself, or the contents of a file."""
    return schema if schema.lstrip()[:1] in ("{", "[", '"') else _read(schema).decode("utf-8", errors="replace")


def check_avro_text(text: str) -> None:
    """Raise if a text is not an Avro schema with columns that Spark has types for."""
    row_type(ParsedAvro([text]))


def _from_text(form: BinaryFormat, schema: object, message: str | None, url: str | None) -> RecordSchema:
    if form == "avro":
        require_fastavro()
        if not isinstance(schema, str):
            raise _wrong_kind(form, schema)
        return RecordSchema("avro", (read_avro_text(schema),), registry=url)
    if isinstance(schema, bytes):
        descriptors = schema
    elif not isinstance(schema, str):
        raise _wrong_kind(form, schema)
    elif schema.endswith(".proto"):
        _read(schema)
        descriptors = compile_file(Path(schema))
    else:
        descriptors = _read(schema)
    full_name = find_message(descriptors, message).full_name
    return RecordSchema("protobuf", descriptors=descriptors, message=full_name, registry=url)


def _from_registry(
    form: BinaryFormat, registered: RegisteredSchema, message: str | None, url: str, subject: str
) -> RecordSchema:
    if registered.kind != KINDS[form]:
        raise JobRefused(
            "other-format",
            f"subject {subject} has schemas of kind {registered.kind}, not {KINDS[form]}",
            evidence={"registry": registry_at(url).name},
            remedy=f'format="{registered.kind.lower()}"' if registered.kind in KINDS.values() else 'format="raw"',
        )
    texts = registry_at(url).with_references(registered)
    if form == "avro":
        return RecordSchema("avro", tuple(text for _, text in texts), registry=url, schema_id=registered.schema_id)
    descriptors = compile_texts(texts)
    chosen = find_message(descriptors, message, () if message else (0,))
    return RecordSchema(
        "protobuf",
        descriptors=descriptors,
        message=chosen.full_name,
        registry=url,
        schema_id=registered.schema_id,
    )


def _require_answer(url: str, subject: str) -> None:
    """Raise if the registry does not answer. It need not know the subject: its first record may be yet to come."""
    try:
        registry_at(url).latest(subject)
    except SchemaNotFound:
        return


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise JobRefused(
            "no-schema-file",
            f"cannot read the schema file {file}",
            evidence={"reason": getattr(error, "strerror", None) or error},
            remedy="check the path; it is relative to the directory in which the command runs",
        ) from None


def _no_schema(form: BinaryFormat, *, has_registry: bool) -> JobRefused:
    ending = "avsc" if form == "avro" else "desc"
    if has_registry:
        return JobRefused(
            "no-schema",
            "the registry needs a subject, because the source has no single topic",
            remedy='subject="TOPIC-value"',
        )
    return JobRefused(
        "no-schema",
        f"{form} records need a schema file or a schema registry",
        remedy=f'add one to the source: schema="FILE.{ending}" or registry="http://127.0.0.1:8081"',
    )


def _wrong_kind(form: BinaryFormat, schema: object) -> JobRefused:
    return JobRefused(
        "bad-schema",
        f"the schema of {form} records must be a file, not a {type(schema).__name__}",
        remedy=f'schema="FILE.{"avsc" if form == "avro" else "desc"}"',
    )
