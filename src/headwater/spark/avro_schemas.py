"""The Avro schema that a sink writes: derived from the job's columns, or given and checked against them."""

from __future__ import annotations

import json
import re
from itertools import chain, count
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.core.errors import JobRefused
from headwater.formats.avro import ParsedAvro, row_type
from headwater.formats.registry import SchemaNotFound, complete_login, registry_at
from headwater.formats.resolving import check_avro_text, read_avro_text
from headwater.formats.schema import RecordSchema
from headwater.jobs.endpoints import Kafka

AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SIMPLE_TYPES: dict[type[DataType], Any] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
WIDER: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (IntegerType, LongType),
    ShortType: (IntegerType, LongType),
    IntegerType: (LongType,),
    FloatType: (DoubleType,),
}


def check_sink_registry(sink: Kafka) -> None:
    """Raise if a sink's schema file or its registry cannot be read."""
    if isinstance(sink.schema, str):
        check_avro_text(read_avro_text(sink.schema))
    if sink.registry is not None:
        try:
            registry_at(complete_login(sink.registry)).latest(_subject(sink))
        except SchemaNotFound:
            return  # the job's first start registers it


def sink_text(sink: Kafka, columns: StructType) -> str:
    """Return the schema that a sink writes as text; refuse columns that do not match it. Nothing is registered."""
    if sink.schema is None:
        return json.dumps(_Derived().record(columns, re.sub(r"\W", "_", f"_{sink.topic}").lstrip("_") or "row"))
    if not isinstance(sink.schema, str):
        raise JobRefused("bad-schema", "the schema of an Avro sink must be a file", remedy='schema="FILE.avsc"')
    text = read_avro_text(sink.schema)
    parsed = ParsedAvro([text])
    if not parsed.is_record:
        raise JobRefused("bad-schema", "the schema of an Avro sink must be a record", remedy="give a record schema")
    expected = StructType.fromDDL(row_type(parsed).ddl)
    optional = {one["name"] for one in parsed.schema["fields"] if "default" in one}
    missing = [name for name in expected.fieldNames() if name not in columns.fieldNames() and name not in optional]
    if missing:
        raise _mismatch(
            f"the Avro schema has a field that the job's result does not have: {', '.join(missing)}", columns
        )
    _compare(columns, expected, "")
    return text


def sink_schema(sink: Kafka, columns: StructType) -> RecordSchema:
    """Return the schema that a sink writes, registered if the sink has a registry."""
    text = sink_text(sink, columns)
    if sink.registry is None:
        return RecordSchema("avro", (text,))
    url = complete_login(sink.registry)
    return RecordSchema("avro", (text,), registry=url, schema_id=registry_at(url).register(_subject(sink), text))


def _subject(sink: Kafka) -> str:
    return sink.subject_name or f"{sink.topic}-value"


class _Derived:
    """Derives the types of columns. A record is named after its place, and numbered if that name is taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def record(self, columns: StructType, name: str) -> dict[str, Any]:
        return {
            "type": "record",
            "name": self._free(name if AVRO_NAME.fullmatch(name) else f"_{name}"),
            "fields": [
                {
                    "name": _checked(one.name),
                    "type": ["null", self._type(one.dataType, f"{name}_{one.name}")],
                    "default": None,
                }
                for one in columns.fields
            ],
        }

    def _free(self, name: str) -> str:
        numbered = (f"{name}_{number}" for number in count(2))
        free = next(one for one in chain([name], numbered) if one not in self._taken)
        self._taken.add(free)
        return free

    def _type(self, kind: DataType, name: str) -> Any:
        match kind:
            case StructType():
                return self.record(kind, name)
            case ArrayType():
                return {"type": "array", "items": ["null", self._type(kind.elementType, f"{name}_item")]}
            case MapType() if isinstance(kind.keyType, StringType):
                return {"type": "map", "values": ["null", self._type(kind.valueType, f"{name}_value")]}
            case DecimalType():
                return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        for known, avro in SIMPLE_TYPES.items():
            if isinstance(kind, known):
                return avro
        raise JobRefused(
            "bad-schema",
            f"Avro has no type for {kind.simpleString()}",
            evidence={"column": name},
            remedy="cast the column to another type in the job's function",
        )


def _checked(name: str) -> str:
    if AVRO_NAME.fullmatch(name):
        return name
    raise JobRefused(
        "bad-schema",
        f"{name!r} cannot be the name of an Avro field",
        evidence={"allowed": "letters, digits and _, and no digit first"},
        remedy="rename the column in the job's function",
    )


def _compare(actual: StructType, expected: StructType, place: str) -> None:
    types = {one.name: one.dataType for one in expected.fields}
    for column in actual.fields:
        name = f"{place}{column.name}"
        if column.name not in types:
            raise _mismatch(f"the Avro schema has no field for the column {name}", expected)
        _compare_types(column.dataType, types[column.name], name)


def _compare_types(actual: DataType, expected: DataType, name: str) -> None:
    match actual, expected:
        case StructType(), StructType():
            _compare(actual, expected, f"{name}.")
        case ArrayType(), ArrayType():
            _compare_types(actual.elementType, expected.elementType, name)
        case MapType(), MapType() if isinstance(actual.keyType, StringType):
            _compare_types(actual.valueType, expected.valueType, name)
        case DecimalType(), DecimalType() if actual.scale <= expected.scale:
            return  # Spark's types of sums have more digits than the values
        case (MapType(), MapType()) | (DecimalType(), DecimalType()):
            raise _type_mismatch(actual, expected, name)
        case _ if type(expected) not in (type(actual), *WIDER.get(type(actual), ())):
            raise _type_mismatch(actual, expected, name)


def _type_mismatch(actual: DataType, expected: DataType, name: str) -> JobRefused:
    return _mismatch(
        f"column {name} is a {actual.simpleString()}, and the Avro schema has {expected.simpleString()}", expected
    )


def _mismatch(problem: str, columns: DataType) -> JobRefused:
    return JobRefused(
        "schema-mismatch",
        problem,
        evidence={"columns": columns.simpleString()[:300]},
        remedy="change the schema file or the job's result; without a schema it is derived from the result",
    )
