"""Protobuf records to rows and back.

Values follow Protobuf's own rules: a field without presence that is not in the record has its default value, and one
with presence (``optional``, a message, a member of a ``oneof``) is null. No unsigned number is reinterpreted as a
negative one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa

from headwater.core.errors import JobRefused
from headwater.formats.columns import ColumnType, RowType, row_problem, struct_of
from headwater.formats.confluent import header, message_path, split_header, split_message_path
from headwater.formats.proto_files import compile_texts, find_message, path_of
from headwater.formats.registry import SchemaNotFound, registry_at
from headwater.formats.schema import MalformedRecord, RecordSchema

Read: TypeAlias = Callable[[Any], Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INT, BIGINT = ColumnType("INT", pa.int32()), ColumnType("BIGINT", pa.int64())
UNSIGNED_LONG = ColumnType("DECIMAL(20,0)", pa.decimal128(20, 0))
FLOAT, DOUBLE = ColumnType("FLOAT", pa.float32()), ColumnType("DOUBLE", pa.float64())
STRING, BINARY = ColumnType("STRING", pa.string()), ColumnType("BINARY", pa.binary())
BOOLEAN = ColumnType("BOOLEAN", pa.bool_())
# By the numbers of google.protobuf.FieldDescriptorProto.Type.
SCALARS = {
    1: DOUBLE,
    2: FLOAT,
    3: BIGINT,
    4: UNSIGNED_LONG,
    5: INT,
    6: UNSIGNED_LONG,
    7: BIGINT,
    8: BOOLEAN,
    9: STRING,
    12: BINARY,
    13: BIGINT,
    15: INT,
    16: BIGINT,
    17: INT,
    18: BIGINT,
}
ENUM = 14
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


class ProtobufDecoder:
    """Decodes records of one message type. With a registry, a record of another message is malformed."""

    def __init__(self, schema: RecordSchema, *, in_batch: bool = False) -> None:
        from google.protobuf import message_factory  # noqa: PLC0415
        from google.protobuf.message import DecodeError  # noqa: PLC0415

        self._schema = schema
        self._message = find_message(schema.descriptors, schema.message)
        self._class = message_factory.GetMessageClass(self._message)
        self._decode_error = DecodeError
        self._registry = registry_at(schema.registry, in_batch=in_batch) if schema.registry else None
        columns, self._read = _message_columns(self._message, ())
        self.row_type = RowType(columns)
        self._names: dict[tuple[int, tuple[int, ...]], str | MalformedRecord] = {}

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the record's columns; raise ``MalformedRecord`` with the reason if it cannot be decoded."""
        if self._registry is not None:
            schema_id, position = split_header(data)
            path, position = split_message_path(data, position)
            name = self._name_of(schema_id, path)
            if name != self._message.full_name:
                raise MalformedRecord(f"the record is a {name}, not a {self._message.full_name}")
            data = data[position:]
        try:
            message = self._class.FromString(data)
        except (self._decode_error, ValueError, RecursionError) as error:
            raise MalformedRecord(str(error)) from None
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise MalformedRecord(f"required fields are missing: {missing}")
        try:
            row: dict[str, Any] = self._read(message)
        except OverflowError as error:
            raise MalformedRecord(f"a time is out of range: {error}") from None
        return row

    def problem(self, data: bytes) -> str | None:
        """Return why a record is malformed; None if it is not."""
        return row_problem(self, data)

    def _name_of(self, schema_id: int, path: tuple[int, ...]) -> str:
        key = (schema_id, path)
        if key not in self._names:
            self._names[key] = self._load_name(schema_id, path)
        found = self._names[key]
        if isinstance(found, MalformedRecord):
            raise found
        return found

    def _load_name(self, schema_id: int, path: tuple[int, ...]) -> str | MalformedRecord:
        """Return the full name of the message that a writer's header names."""
        assert self._registry is not None
        if schema_id == self._schema.schema_id and path == path_of(self._message):
            return str(self._message.full_name)
        try:
            registered = self._registry.schema(schema_id)
            if registered.kind != "PROTOBUF":
                return MalformedRecord(f"schema {schema_id} is a schema of kind {registered.kind}")
            descriptors = compile_texts(self._registry.with_references(registered))
            return str(find_message(descriptors, None, path).full_name)
        except SchemaNotFound as error:
            return MalformedRecord(error.problem)
        except JobRefused as error:
            return MalformedRecord(f"schema {schema_id}: {error.problem}: {error.evidence.get('reason')}")


class ProtobufEncoder:
    """Encodes rows for tests. Times are text, as in Protobuf's JSON form."""

    def __init__(self, schema: RecordSchema) -> None:
        from google.protobuf import message_factory  # noqa: PLC0415

        message = find_message(schema.descriptors, schema.message)
        self._class = message_factory.GetMessageClass(message)
        registered = schema.schema_id is not None
        self._header = header(schema.schema_id or 0) + message_path(path_of(message)) if registered else b""

    def encode_plain(self, row: Mapping[str, Any]) -> bytes:
        """Return the record; raise ``ValueError`` if the row does not match the message."""
        from google.protobuf import json_format  # noqa: PLC0415

        try:
            message = json_format.ParseDict(dict(row), self._class())
        except json_format.ParseError as error:
            raise ValueError(f"a row does not match the Protobuf message: {error}") from None
        return self._header + bytes(message.SerializeToString())


def _message_columns(message: Any, path: tuple[str, ...]) -> tuple[dict[str, ColumnType], Read]:
    """Return the columns of a message, and a function that reads a message into a dictionary."""
    if message.full_name in path:
        raise JobRefused(
            "recursive-schema",
            f"the Protobuf message {message.full_name} contains itself, and Spark has no recursive types",
            evidence={"path": " > ".join((*path, message.full_name))},
            remedy='give a schema without this field, or decode the values yourself: format="raw"',
        )
    columns: dict[str, ColumnType] = {}
    readers: list[tuple[str, Read]] = []
    for field in message.fields:
        columns[field.name], read = _field(field, (*path, message.full_name))
        readers.append((field.name, read))
    return columns, lambda value: {name: read(value) for name, read in readers}


def _field(field: Any, path: tuple[str, ...]) -> tuple[ColumnType, Read]:
    name, inner = field.name, field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        keys, _ = _value(inner.fields_by_name["key"], path)
        values, read_value = _value(inner.fields_by_name["value"], path)
        column = ColumnType(f"MAP<{keys.ddl}, {values.ddl}>", pa.map_(keys.arrow, values.arrow))
        return column, lambda value: {key: read_value(one) for key, one in getattr(value, name).items()}
    element, read = _value(field, path)
    if _is_repeated(field):
        column = ColumnType(f"ARRAY<{element.ddl}>", pa.list_(element.arrow))
        return column, lambda value: [read(one) for one in getattr(value, name)]
    if field.has_presence:
        return element, lambda value: read(getattr(value, name)) if value.HasField(name) else None
    return element, lambda value: read(getattr(value, name))


def _value(field: Any, path: tuple[str, ...]) -> tuple[ColumnType, Read]:
    """Return the type of a single value, and a function that reads it."""
    if field.type == ENUM:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return STRING, lambda number: names.get(number, str(number))
    if field.type in SCALARS:
        return SCALARS[field.type], lambda value: value
    message = field.message_type
    if message.full_name == "google.protobuf.Timestamp":
        return ColumnType("TIMESTAMP", pa.timestamp("us", "UTC")), lambda value: EPOCH + _duration(value)
    if message.full_name == "google.protobuf.Duration":
        return ColumnType("INTERVAL DAY TO SECOND", pa.duration("us")), _duration
    if message.full_name in WRAPPERS:
        column, _ = _value(message.fields_by_name["value"], path)
        return column, lambda value: value.value
    columns, read = _message_columns(message, path)
    return struct_of(columns), read


def _duration(value: Any) -> timedelta:
    return timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def _is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)  # missing from older versions, where label is not deprecated yet
    return bool(field.label == field.LABEL_REPEATED if known is None else known)
