"""Where a schema comes from, and the errors for one that is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.core.errors import HeadwaterError, JobRefused, ServiceUnreachable
from headwater.formats.resolving import resolve_schema
from headwater.formats.schema import RecordSchema
from registry_support import SchemaRegistry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def test_schema_file(tmp_path: Path) -> None:
    """A file, or the schema itself as text, needs no registry."""
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    expected = RecordSchema("avro", (json.dumps(ORDER),))
    assert resolve_schema("avro", str(tmp_path / "order.avsc")) == expected
    assert resolve_schema("avro", json.dumps(ORDER)) == expected
    assert resolve_schema("avro", expected) == expected


def test_file_with_a_registry(registry: SchemaRegistry) -> None:
    """With both, the file decides the columns, and the registry need not know the subject yet."""
    schema = resolve_schema("avro", json.dumps(ORDER), registry=registry.url, subject="orders-value")
    assert (schema.registry, schema.schema_id) == (registry.url, None)
    registry.fault = (200, b"<html>", {})
    with pytest.raises(ServiceUnreachable, match="unexpected"):
        resolve_schema("avro", json.dumps(ORDER), registry=registry.url, subject="orders-value")


def test_newest_version(registry: SchemaRegistry) -> None:
    """Without a file, the newest version of the subject decides the columns."""
    registry.add("orders-value", ORDER)
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}
    number = registry.add("orders-value", newer)
    schema = resolve_schema("avro", None, registry=registry.url, subject="orders-value")
    assert (json.loads(schema.texts[0]), schema.schema_id) == (newer, number)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "no-schema"),
        ({"registry": "http://127.0.0.1:1"}, "no-schema"),
        ({"schema": "no-such-file.avsc"}, "no-schema-file"),
        ({"schema": "."}, "no-schema-file"),
        ({"schema": "{"}, "bad-schema"),
        ({"schema": b"x"}, "bad-schema"),
        ({"registry": "kafka:9092", "subject": "s"}, "bad-registry"),
        ({"registry": "http://127.0.0.1:1", "subject": "s"}, "registry-unreachable"),
    ],
)
def test_missing_schemas(options: dict[str, str], code: str) -> None:
    """Each way to have no schema has an error of its own."""
    schema = options.get("schema")
    with pytest.raises(HeadwaterError) as caught:
        resolve_schema("avro", schema, registry=options.get("registry"), subject=options.get("subject"))
    assert caught.value.code == code


def test_subject_of_another_format(registry: SchemaRegistry) -> None:
    """A subject with Protobuf schemas is not read as Avro."""
    registry.add("s", 'syntax = "proto3"; message M { int32 a = 1; }', "PROTOBUF")
    with pytest.raises(JobRefused, match="PROTOBUF, not AVRO") as caught:
        resolve_schema("avro", None, registry=registry.url, subject="s")
    assert caught.value.remedy == 'format="protobuf"'


def test_unknown_subject(registry: SchemaRegistry) -> None:
    """A subject that does not exist is an error before the stream starts."""
    with pytest.raises(ServiceUnreachable) as caught:
        resolve_schema("avro", None, registry=registry.url, subject="orders-value")
    assert caught.value.code == "no-schema-in-registry"
