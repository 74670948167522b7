"""Avro records to rows and back: Spark types of a schema, a strict decoder, an encoder.

Types are those of Spark's ``from_avro``, with two exceptions: ``time-micros`` is always a ``BIGINT``, and a union of
several types other than null is refused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater.core.errors import JobRefused
from headwater.core.extras import naming_extras
from headwater.formats.avro_check import record_check
from headwater.formats.avro_evolution import Conversion, Conversions, fill_defaults
from headwater.formats.columns import ColumnType, RowType, row_problem, struct_of
from headwater.formats.confluent import header, split_header
from headwater.formats.registry import SchemaNotFound, registry_at
from headwater.formats.schema import MalformedRecord, RecordSchema

PRIMITIVES = {
    "null": ColumnType("VOID", pa.null()),
    "boolean": ColumnType("BOOLEAN", pa.bool_()),
    "int": ColumnType("INT", pa.int32()),
    "long": ColumnType("BIGINT", pa.int64()),
    "float": ColumnType("FLOAT", pa.float32()),
    "double": ColumnType("DOUBLE", pa.float64()),
    "bytes": ColumnType("BINARY", pa.binary()),
    "string": ColumnType("STRING", pa.string()),
    "enum": ColumnType("STRING", pa.string()),
    "fixed": ColumnType("BINARY", pa.binary()),
}
TIMESTAMP = ColumnType("TIMESTAMP", pa.timestamp("us", "UTC"))
LOCAL_TIMESTAMP = ColumnType("TIMESTAMP_NTZ", pa.timestamp("us"))
LOGICAL_TYPES: dict[tuple[Any, Any], ColumnType] = {
    ("int", "date"): ColumnType("DATE", pa.date32()),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): LOCAL_TIMESTAMP,
}
# fastavro would convert others to Python objects that are not columns of Spark.
CONVERTED = frozenset({"decimal", *(logical for _, logical in LOGICAL_TYPES)})
WIDENED_UNIONS = ({"int", "long"}, "long"), ({"float", "double"}, "double")
MAX_DECIMAL_PRECISION = 38
SINGLE_COLUMN = "value"
# With these keys, fastavro takes a schema as parsed.
PARSED, NAMED = "__fastavro_parsed", "__named_schemas"


class ParsedAvro:
    """A parsed schema and the named types that it consists of. Of its logical types, it has those in ``logical``."""

    def __init__(self, texts: Sequence[str], logical: Container[str] = CONVERTED) -> None:
        fastavro = require_fastavro()
        self.texts = tuple(texts)
        self.named: dict[str, Any] = {}
        try:
            self.sources = [_parsed_json(text) for text in texts]
            for source in self.sources:
                self.schema = fastavro.parse_schema(_with_logical_types(source, logical), self.named)
        except (ValueError, KeyError, TypeError, RecursionError, fastavro.schema.SchemaParseException) as error:
            raise JobRefused(
                "bad-schema",
                "the Avro schema is not valid",
                evidence={"reason": f"{type(error).__name__}: {error}"[:300]},
                remedy="check the schema file: an .avsc file holds one schema as JSON",
            ) from None
        self.schema = self._complete(self.schema)

    def _complete(self, schema: Any) -> Any:
        """Return a schema with the named types that it refers to, where fastavro adds them to records only."""
        if isinstance(schema, list):
            return [self._complete(branch) for branch in schema]
        definition = self.named.get(schema) if isinstance(schema, str) else schema
        return {**definition, PARSED: True, NAMED: self.named} if definition else schema

    @property
    def is_record(self) -> bool:
        return isinstance(self.schema, dict) and self.schema["type"] in ("record", "error")


@dataclass(frozen=True)
class _Writer:
    """How the records of one schema are read: they are checked, decoded and converted to the columns of the reader."""

    schema: Any
    check: Callable[[bytes, int], None]
    reader: Any = None
    """The schema to resolve the values with; None for the writer's own."""
    convert: Conversion | None = None


class AvroDecoder:
    """Decodes records of any writer's schema into the columns of one schema. Unknown writers come from the registry."""

    def __init__(self, schema: RecordSchema, *, in_batch: bool = False) -> None:
        self._fastavro = require_fastavro()
        self._reader = ParsedAvro(schema.texts)
        self._registry = registry_at(schema.registry, in_batch=in_batch) if schema.registry else None
        self.row_type = row_type(self._reader)
        self._own = _Writer(self._reader.schema, record_check(self._reader.schema, self._reader.named))
        self._resolved = ParsedAvro(schema.texts, logical=())
        fill_defaults(self._resolved.named)
        self._writers: dict[int, _Writer | MalformedRecord] = {}

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the record's columns; raise ``MalformedRecord`` with the reason if it cannot be decoded."""
        writer, position = self._own, 0
        if self._registry is not None:
            schema_id, position = split_header(data)
            writer = self._writer(schema_id)
        writer.check(data, position)
        stream = io.BytesIO(data)
        stream.seek(position)
        try:
            value = self._fastavro.schemaless_reader(stream, writer.schema, writer.reader)
            if writer.convert is not None:
                value = writer.convert(value)
        except self._fastavro.read.SchemaResolutionError as error:
            raise MalformedRecord(f"its schema cannot be read with this job's: {str(error).splitlines()[0]}") from None
        except Exception as error:  # no input or output happens here: whatever it is, the record caused it
            raise MalformedRecord(f"{type(error).__name__}: {error}") from None
        return value if self._reader.is_record else {SINGLE_COLUMN: value}

    def problem(self, data: bytes) -> str | None:
        """Return why a record is malformed; None if it is not."""
        return row_problem(self, data)

    def _writer(self, schema_id: int) -> _Writer:
        if schema_id not in self._writers:
            self._writers[schema_id] = self._load_writer(schema_id)
        found = self._writers[schema_id]
        if isinstance(found, MalformedRecord):
            raise found
        return found

    def _load_writer(self, schema_id: int) -> _Writer | MalformedRecord:
        assert self._registry is not None
        try:
            registered = self._registry.schema(schema_id)
            if registered.kind != "AVRO":
                return MalformedRecord(f"schema {schema_id} is a {registered.kind} schema")
            return self._reading(ParsedAvro([text for _, text in self._registry.with_references(registered)]))
        except SchemaNotFound as error:
            return MalformedRecord(error.problem)
        except JobRefused as error:
            return MalformedRecord(f"schema {schema_id}: {error.problem}: {error.evidence.get('reason')}")
        except MalformedRecord as error:
            return error

    def _reading(self, written: ParsedAvro) -> _Writer:
        if written.sources == self._reader.sources:
            return self._own
        plain = ParsedAvro(written.texts, logical=())
        convert = Conversions(self._reader.named, written.named).of(self._reader.schema, written.schema)
        return _Writer(plain.schema, record_check(plain.schema, plain.named), self._resolved.schema, convert)


class AvroEncoder:
    """Encodes rows with one schema, after the header of the registry if the schema is registered."""

    def __init__(self, schema: RecordSchema) -> None:
        self._fastavro = require_fastavro()
        self._parsed = ParsedAvro(schema.texts)
        self._header = b"" if schema.schema_id is None else header(schema.schema_id)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Return the record; raise ``ValueError`` if the row does not match the schema."""
        value = row if self._parsed.is_record else row[SINGLE_COLUMN]
        out = io.BytesIO()
        out.write(self._header)
        try:
            self._fastavro.schemaless_writer(out, self._parsed.schema, value, strict_allow_default=True)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise ValueError(f"a row does not match the Avro schema: {error}") from error
        return out.getvalue()

    def encode_plain(self, row: Mapping[str, Any]) -> bytes:
        """Encode a row in which times, dates and decimals may be text, as in JSON."""
        return self.encode(_typed(row, self._parsed.schema, self._parsed.named))


def row_type(parsed: ParsedAvro) -> RowType:
    """Return the columns of a schema. A schema that Spark has no type for is refused."""
    types = _Types(parsed.named)
    if parsed.is_record:
        fields = {one["name"]: types.of(one["type"], one["name"], (parsed.schema["name"],)) for one in _fields(parsed)}
        return RowType(fields)
    return RowType({SINGLE_COLUMN: types.of(parsed.schema, SINGLE_COLUMN, ())})


def _fields(parsed: ParsedAvro) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = parsed.schema["fields"]
    return fields


class _Types:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def of(self, schema: Any, place: str, path: tuple[str, ...]) -> ColumnType:
        """Return the type of a schema. ``place`` names its field; ``path`` are the records around it."""
        if isinstance(schema, list):
            return self._union(schema, place, path)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.of(kind, place, path)
        if kind not in PRIMITIVES and kind not in ("array", "map", "record", "error"):
            return self.of(self._named[kind], place, path)
        match kind:
            case "array":
                items = self.of(schema["items"], f"{place}[]", path)
                return ColumnType(f"ARRAY<{items.ddl}>", pa.list_(items.arrow))
            case "map":
                values = self.of(schema["values"], f"{place}[]", path)
                return ColumnType(f"MAP<STRING, {values.ddl}>", pa.map_(pa.string(), values.arrow))
            case "record" | "error":
                return self._record(schema, place, path)
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(schema, place)
        return LOGICAL_TYPES.get((kind, logical), PRIMITIVES[kind])

    def _record(self, schema: Mapping[str, Any], place: str, path: tuple[str, ...]) -> ColumnType:
        if schema["name"] in path:
            raise JobRefused(
                "recursive-schema",
                f"the Avro type {schema['name']} contains itself, and Spark has no recursive types",
                evidence={"field": place},
                remedy='give a schema without this field: schema="FILE.avsc"; or decode the values yourself: format="raw"',
            )
        inside = (*path, schema["name"])
        return struct_of(
            {one["name"]: self.of(one["type"], f"{place}.{one['name']}", inside) for one in schema["fields"]}
        )

    def _union(self, branches: Sequence[Any], place: str, path: tuple[str, ...]) -> ColumnType:
        others = [branch for branch in branches if branch != "null"]
        if len(others) <= 1:
            return self.of(others[0], place, path) if others else PRIMITIVES["null"]
        for names, widest in WIDENED_UNIONS:
            if len(others) == 2 and all(isinstance(one, str) for one in others) and set(others) == names:
                return PRIMITIVES[widest]
        raise JobRefused(
            "union-schema",
            f"field {place} is a union of several types, which is not supported",
            evidence={"union": json.dumps(_named_only(branches))},
            remedy='give a schema without this field: schema="FILE.avsc"; or decode the values yourself: format="raw"',
        )


def _decimal(schema: Mapping[str, Any], place: str) -> ColumnType:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        raise JobRefused(
            "bad-schema",
            f"field {place} is a decimal with an invalid precision or scale",
            evidence={"precision": precision, "scale": scale},
            remedy='correct the schema, or decode the values yourself: format="raw"',
        )
    if precision > MAX_DECIMAL_PRECISION:
        raise JobRefused(
            "bad-schema",
            f"field {place} has {precision} decimal digits, and Spark's decimals have at most {MAX_DECIMAL_PRECISION}",
            remedy='decode the values yourself: format="raw"',
        )
    return ColumnType(f"DECIMAL({precision},{scale})", pa.decimal128(precision, scale))


def _named_only(branches: Sequence[Any]) -> list[Any]:
    return [one.get("name", one["type"]) if isinstance(one, dict) else one for one in branches]


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        name = text.strip()
        if name in PRIMITIVES:  # some registries store a primitive type without quotes
            return name
        raise


def _with_logical_types(schema: Any, logical: Container[str]) -> Any:
    """Return a schema without any other logical types. It may be of any shape."""
    if isinstance(schema, list):
        return [_with_logical_types(one, logical) for one in schema]
    if not isinstance(schema, dict):
        return schema
    nested = {"type", "items", "values", "fields"}
    kept = {name: _with_logical_types(part, logical) if name in nested else part for name, part in schema.items()}
    if "logicalType" in kept and kept["logicalType"] not in logical:
        del kept["logicalType"]
    return kept


def _typed(value: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    """Return a value with times, dates, decimals and bytes made from the text that JSON has for them."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        return value if value is None or len(others) != 1 else _typed(value, others[0], named)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _typed(value, kind, named)
    if kind in named and kind not in PRIMITIVES:
        return _typed(value, named[kind], named)
    if kind in ("record", "error") and isinstance(value, Mapping):
        types = {one["name"]: one["type"] for one in schema["fields"]}
        return {name: _typed(part, types[name], named) if name in types else part for name, part in value.items()}
    if kind == "array" and isinstance(value, Sequence) and not isinstance(value, str):
        return [_typed(one, schema["items"], named) for one in value]
    if kind == "map" and isinstance(value, Mapping):
        return {key: _typed(one, schema["values"], named) for key, one in value.items()}
    if not isinstance(value, str):
        return value
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    match LOGICAL_TYPES.get((kind, logical)), logical:
        case ColumnType(ddl="DATE"), _:
            return date.fromisoformat(value)
        case ColumnType(ddl="TIMESTAMP"), _:
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        case ColumnType(), _:
            return datetime.fromisoformat(value)
        case None, "decimal":
            return Decimal(value)
    return value.encode() if kind in ("bytes", "fixed") else value


def require_fastavro() -> Any:
    """Return the package; raise ``SetupProblem`` if it is not installed."""
    with naming_extras():
        import fastavro  # noqa: PLC0415  only jobs with Avro need the package
        import fastavro.read  # noqa: PLC0415
        import fastavro.schema  # noqa: PLC0415
    return fastavro
