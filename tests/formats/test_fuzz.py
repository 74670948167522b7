"""Whatever a schema registry answers, a schema file contains or a record consists of: a result or a Headwater error."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from checkpoint.fuzzing import mutated
from headwater.core.errors import HeadwaterError, JobRefused
from headwater.formats.proto_files import compile_texts
from headwater.formats.registry import Registry
from headwater.formats.resolving import decoder_for, encoder_for, resolve_schema
from headwater.formats.schema import MalformedRecord, RecordSchema
from registry_support import SchemaRegistry

SEED = int(os.environ.get("SEED", "20260701"))
ROUNDS = [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, 20))]
MUTATIONS = int(os.environ.get("HEADWATER_FUZZ_MUTATIONS", "10000")) // len(ROUNDS)
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": ["null", "int"]}}},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}, "default": "S"},
    ],
}
PROTOBUF = """
syntax = "proto3";
package shop;
message Line { string sku = 1; repeated sint64 counts = 2; }
message Order { string id = 1; map<string, Line> lines = 2; oneof either { bytes left = 3; double right = 4; } }
"""
SCHEMAS = {
    "avro": RecordSchema("avro", (json.dumps(AVRO),)),
    "protobuf": RecordSchema("protobuf", descriptors=compile_texts([("", PROTOBUF)]), message="shop.Order"),
}
ROWS = {
    "avro": {"id": "a", "at": "2026-01-01T00:00:00Z", "price": "1.50", "tags": {"x": [1, None]}, "size": "L"},
    "protobuf": {"id": "a", "lines": {"x": {"sku": "s", "counts": [1, -2]}}, "left": "AAE="},
}  # fmt: skip


def variants(data: bytes, turn: int) -> list[tuple[str, bytes]]:
    """Return mutations of some bytes, with their descriptions; a few in the round of every run."""
    chance, count = random.Random(SEED * 1000 + turn), MUTATIONS if turn else 60
    found = []
    for _ in range(count):
        contents, descriptions = mutated({"file": data}, chance)
        found.append(("; ".join(descriptions), next(iter(contents.values()), b"")))
    return found


@pytest.mark.parametrize("turn", ROUNDS)
@pytest.mark.parametrize("kind", SCHEMAS)
def test_records(kind: str, turn: int) -> None:
    """A mutated record is decoded or malformed, and the same is said of it a second time."""
    decoder, encoder = decoder_for(SCHEMAS[kind]), encoder_for(SCHEMAS[kind])
    malformed = 0
    for description, data in variants(encoder.encode_plain(ROWS[kind]), turn):
        try:
            decoder.decode(data)
        except MalformedRecord:
            malformed += 1
        except Exception as error:
            raise AssertionError(f"{kind}: {description}: {data!r}") from error
        assert decoder.problem(data) == decoder.problem(data)
    assert malformed > 5


@pytest.mark.parametrize("turn", ROUNDS)
def test_schemas(turn: int) -> None:
    """A mutated schema is understood or refused."""
    refused = 0
    for description, data in variants(json.dumps(AVRO).encode(), turn):
        try:
            resolve_schema("avro", data.decode("utf-8", errors="replace"))
        except HeadwaterError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{description}: {data!r}") from error
    assert refused > 0


@pytest.mark.parametrize("turn", ROUNDS)
def test_answers_of_a_registry(registry: SchemaRegistry, turn: int) -> None:
    """A mutated answer is a schema or an error of Headwater."""
    good = {
        "id": 1,
        "version": 3,
        "schema": json.dumps(AVRO),
        "references": [{"name": "x", "subject": "y", "version": 1}],
    }
    found = {"schemas": 0, "errors": 0}
    for description, data in variants(json.dumps(good).encode(), turn):
        registry.fault = (200, data, {})
        try:
            reader = Registry(registry.url)
            schema = reader.latest("orders")
            reader.with_references(schema)
            resolve_schema("avro", schema.text)
        except HeadwaterError:
            found["errors"] += 1
        except Exception as error:
            raise AssertionError(f"{description}: {data!r}") from error
        else:
            found["schemas"] += 1
    assert found["errors"] > 5


@pytest.mark.parametrize(
    ("precision", "scale"), [({}, 2), ("9", 0), (0, 0), (-1, 0), (4, 5), (4, -1), (True, 0), (2.5, 0), (None, 0)]
)
def test_invalid_decimals(precision: object, scale: object) -> None:
    """A decimal without a valid precision and scale is refused with the name of its field."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    schema = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": kind}]}
    with pytest.raises(JobRefused) as refused:
        resolve_schema("avro", json.dumps(schema))
    assert refused.value.code == "bad-schema"


def test_a_schema_file_whose_name_is_none() -> None:
    """A name with a null byte is the name of no file."""
    with pytest.raises(JobRefused) as refused:
        resolve_schema("avro", "orders\0.avsc")
    assert refused.value.code == "no-schema-file"
