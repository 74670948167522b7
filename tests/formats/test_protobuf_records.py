"""Protobuf records: compiled schemas, columns, decoding and hostile input."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.formats.columns import decode_all
from headwater.formats.confluent import header
from headwater.formats.proto_files import compile_texts
from headwater.formats.protobuf import ProtobufDecoder, ProtobufEncoder
from headwater.formats.resolving import resolve_schema
from headwater.formats.schema import RecordSchema
from registry_support import SchemaRegistry

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Status { NEW = 0; PAID = 1; }
message Line { string sku = 1; double price = 2; }
message Order {
  string id = 1;
  int32 quantity = 2;
  uint32 small = 3;
  uint64 large = 4;
  optional double amount = 5;
  Status status = 6;
  repeated Line lines = 7;
  map<int32, string> tags = 8;
  google.protobuf.Timestamp at = 9;
  google.protobuf.Duration took = 10;
  google.protobuf.StringValue note = 11;
  bytes blob = 12;
  oneof either { string left = 13; int64 right = 14; }
  message Nested { bool yes = 1; }
  Nested nested = 15;
}
"""
ROW = {
    "id": "a",
    "quantity": -1,
    "small": 2**32 - 1,
    "large": 2**64 - 1,
    "amount": 2.5,
    "status": "PAID",
    "lines": [{"sku": "x", "price": 1.5}],
    "tags": {"7": "seven"},
    "at": "2024-10-06T10:00:00Z",
    "took": "1.5s",
    "note": "hi",
    "blob": "AAE=",
    "right": "5",
    "nested": {"yes": True},
}


@pytest.fixture(scope="module")
def order() -> RecordSchema:
    """The schema of an order, compiled once."""
    return RecordSchema("protobuf", descriptors=compile_texts([("", ORDER)]), message="shop.Order")


def test_columns_and_values(order: RecordSchema) -> None:
    """Each Protobuf type has its Spark type, and no unsigned number becomes negative."""
    decoder = ProtobufDecoder(order)
    assert decoder.row_type.ddl == (
        "`id` STRING, `quantity` INT, `small` BIGINT, `large` DECIMAL(20,0), `amount` DOUBLE, `status` STRING, "
        "`lines` ARRAY<STRUCT<`sku`: STRING, `price`: DOUBLE>>, `tags` MAP<INT, STRING>, `at` TIMESTAMP, "
        "`took` INTERVAL DAY TO SECOND, `note` STRING, `blob` BINARY, `left` STRING, `right` BIGINT, "
        "`nested` STRUCT<`yes`: BOOLEAN>"
    )
    data = ProtobufEncoder(order).encode_plain(ROW)
    columns, malformed = decode_all(decoder, [data, b""])
    assert malformed.to_pylist() == [False, False]
    rows = dict(zip(decoder.row_type.columns, [column.to_pylist() for column in columns], strict=True))
    assert {name: values[0] for name, values in rows.items()} == {
        **ROW,
        "tags": [(7, "seven")],
        "at": datetime(2024, 10, 6, 10, tzinfo=UTC),
        "took": timedelta(seconds=1.5),
        "blob": b"\x00\x01",
        "left": None,
        "right": 5,
    }
    assert [rows[name][1] for name in ("id", "quantity", "amount", "status", "lines", "at", "note", "nested")] == [
        "",
        0,
        None,
        "NEW",
        [],
        None,
        None,
        None,
    ]


def test_unknown_enum_number_is_kept(order: RecordSchema) -> None:
    """A value that a newer writer added to an enum is its number."""
    assert ProtobufDecoder(order).decode(b"\x30\x09")["status"] == "9"


def test_hostile_records(order: RecordSchema) -> None:
    """Truncated fields, invalid text and types, endless numbers and deep nesting are malformed."""
    decoder = ProtobufDecoder(order)
    for data in (
        b"\x0a\xff",
        b"\xff" * 20,
        b"\x0a\x02\xff\xfe",
        b"\x08",
        b"\x4a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ):
        assert decoder.problem(data), data
    source = random.Random(1)
    good = ProtobufEncoder(order).encode_plain(ROW)
    for _ in range(500):
        data = bytearray(good)
        data[source.randrange(len(data))] = source.randrange(256)
        decode_all(decoder, [bytes(data), bytes(data[: source.randrange(len(data))])])


def test_deep_nesting_is_malformed() -> None:
    """A deeply nested unknown group does not end the process."""
    schema = RecordSchema(
        "protobuf", descriptors=compile_texts([("", 'syntax = "proto3"; message M { int32 a = 1; }')]), message="M"
    )
    assert ProtobufDecoder(schema).problem(b"\x13" * 100_000)


def test_records_name_their_message(registry: SchemaRegistry) -> None:
    """With a registry, a record of another message is malformed, and newer versions of the message are read."""
    first = registry.add("orders-value", ORDER, kind="PROTOBUF")
    schema = resolve_schema("protobuf", None, registry=registry.url, subject="orders-value", message="Order")
    newer = registry.add("orders-value", ORDER.replace("string id = 1;", "string id = 1; int32 more = 99;"), "PROTOBUF")
    avro = registry.add("other", '"string"')
    data = ProtobufEncoder(schema).encode_plain(ROW)
    assert data[:7] == header(first) + b"\x02\x02"
    decoder = ProtobufDecoder(schema)
    body = data[7:]
    assert decoder.decode(data)["id"] == "a"
    assert decoder.decode(header(newer) + b"\x02\x02" + body)["id"] == "a"
    reasons = {
        header(newer) + b"\x00" + b"\x0a\x01x": "the record is a shop.Line, not a shop.Order",
        header(first) + b"\x04\x02\x00" + b"\x08\x01": "shop.Order.Nested",
        header(first) + b"\x02\x64" + body: "there is no message [50]",
        header(first) + b"\x01" + body: "message indexes",
        header(99) + b"\x02\x02" + body: "does not have schema 99",
        header(avro) + b"\x02\x02" + body: "kind AVRO",
        b"\x00": "too short",
    }
    for record, reason in reasons.items():
        assert reason in (decoder.problem(record) or ""), reason
    registry.fault = (503, b"", {})
    with pytest.raises(ServiceUnreachable):
        decoder.decode(header(77) + b"\x00" + body)


def test_first_message_of_a_subject(registry: SchemaRegistry) -> None:
    """Without a message, the first one of the newest schema is read; imports come from other subjects."""
    registry.add("money", 'syntax = "proto3"; message Money { int64 cents = 1; }', "PROTOBUF")
    text = 'syntax = "proto3"; import "shop/money.proto"; message Sale { Money total = 1; } message Other {}'
    registry.add("s", text, "PROTOBUF", [{"name": "shop/money.proto", "subject": "money", "version": 1}])
    schema = resolve_schema("protobuf", None, registry=registry.url, subject="s")
    assert schema.message == "Sale"
    assert ProtobufDecoder(schema).row_type.ddl == "`total` STRUCT<`cents`: BIGINT>"


def test_known_import_of_a_registry(registry: SchemaRegistry, tmp_path: Path) -> None:
    """Schemas may import Confluent's file of annotations, which no subject holds; one of their own has priority."""
    text = """
        syntax = "proto3";
        import "confluent/meta.proto";
        message Sale {
          option (confluent.message_meta).doc = "A sale";
          int64 cents = 1 [(confluent.field_meta) = {doc: "d", params: [{key: "k", value: "v"}], tags: ["PII"]}];
        }
    """
    number = registry.add("annotated", text, "PROTOBUF")
    schema = resolve_schema("protobuf", None, registry=registry.url, subject="annotated")
    assert ProtobufDecoder(schema).decode(header(number) + b"\x00\x08\x05") == {"cents": 5}
    (tmp_path / "confluent").mkdir()
    (tmp_path / "confluent" / "meta.proto").write_text('syntax = "proto3"; message Own { int32 a = 1; }')
    (tmp_path / "a.proto").write_text('syntax = "proto3"; import "confluent/meta.proto"; message M { Own own = 1; }')
    assert (
        ProtobufDecoder(resolve_schema("protobuf", str(tmp_path / "a.proto"))).row_type.ddl == "`own` STRUCT<`a`: INT>"
    )


def test_files(tmp_path: Path, order: RecordSchema) -> None:
    """A schema is a .proto file or a descriptor set; several messages need a name."""
    (tmp_path / "order.proto").write_text(ORDER)
    (tmp_path / "order.desc").write_bytes(order.descriptors)
    for name in ("order.proto", "order.desc"):
        assert resolve_schema("protobuf", str(tmp_path / name), message="Order").message == "shop.Order"
    with pytest.raises(JobRefused, match="several messages") as caught:
        resolve_schema("protobuf", str(tmp_path / "order.desc"))
    assert "shop.Line" in caught.value.evidence["messages"]
    assert resolve_schema("protobuf", str(tmp_path / "order.desc"), message="shop.Order.Nested").message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('syntax = "proto3"; message A { A a = 1; }', "recursive-schema"),
        ('syntax = "proto3"; mess', "bad-schema"),
        ('syntax = "proto3"; import "missing.proto"; message A {}', "bad-schema"),
        ('syntax = "proto3";', "no-message"),
    ],
)
def test_schemas_that_cannot_be_read(tmp_path: Path, text: str, code: str) -> None:
    """Recursive, invalid and empty schemas are refused before a job starts."""
    (tmp_path / "a.proto").write_text(text)
    with pytest.raises(JobRefused) as caught:
        resolve_schema("protobuf", str(tmp_path / "a.proto"))
    assert caught.value.code == code


def test_import_outside_its_folder() -> None:
    """A registry cannot write a file outside the compiler's folder."""
    with pytest.raises(JobRefused, match="not valid"):
        compile_texts([("../x.proto", 'syntax = "proto3";'), ("", 'syntax = "proto3"; import "../x.proto";')])
