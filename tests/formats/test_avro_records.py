"""Avro records: columns, decoding, evolution and hostile input."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from time import tzset
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.formats.avro import AvroDecoder, AvroEncoder
from headwater.formats.columns import decode_all
from headwater.formats.confluent import header
from headwater.formats.resolving import resolve_schema
from headwater.formats.schema import MalformedRecord, RecordSchema
from registry_support import SchemaRegistry

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "price", "type": {
                "type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}}]}}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tick", "type": {"type": "long", "logicalType": "time-micros"}},
    ],
}  # fmt: skip
ROW = {
    "id": "a",
    "amount": 2.5,
    "at": datetime(2024, 10, 6, 10, tzinfo=UTC),
    "status": "PAID",
    "lines": [{"sku": "x", "price": Decimal("1.50")}],
    "tags": {"n": 7},
    "day": date(2024, 10, 6),
    "ref": "9f1b0c1e-0000-0000-0000-000000000000",
    "tick": 5,
}


def schema_of(schema: Any, registry: SchemaRegistry | None = None) -> RecordSchema:
    return RecordSchema("avro", (json.dumps(schema),), registry=registry.url if registry else None)


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_columns_and_values() -> None:
    """Each Avro type has its Spark type, and values come back as they were written."""
    decoder = AvroDecoder(schema_of(ORDER))
    assert decoder.row_type.ddl == (
        "`id` STRING, `amount` DOUBLE, `at` TIMESTAMP, `status` STRING, "
        "`lines` ARRAY<STRUCT<`sku`: STRING, `price`: DECIMAL(6,2)>>, `tags` MAP<STRING, INT>, `day` DATE, `ref` STRING, "
        "`tick` BIGINT"
    )
    data = AvroEncoder(schema_of(ORDER)).encode(ROW)
    assert decoder.decode(data) == ROW
    columns, malformed = decode_all(decoder, [data, None, b"?", data])
    assert malformed.to_pylist() == [False, True, True, False]
    assert [column.to_pylist()[1] for column in columns] == [None] * 9
    assert columns[5].to_pylist()[0] == [("n", 7)]


def test_text_of_a_test_becomes_typed() -> None:
    """Times, dates and decimals may be given as text, as in JSON."""
    plain = {**ROW, "at": "2024-10-06T10:00:00Z", "day": "2024-10-06", "lines": [{"sku": "x", "price": "1.50"}]}
    schema = schema_of(ORDER)
    assert AvroDecoder(schema).decode(AvroEncoder(schema).encode_plain(plain)) == ROW


def test_each_record_is_read_with_its_own_schema(registry: SchemaRegistry) -> None:
    """Records of older and newer writers are read into the columns of one schema; each schema is fetched once."""
    old = {"type": "record", "name": "Visit", "fields": [{"name": "user", "type": "int"}]}
    new = {**old, "fields": [{"name": "page", "type": "string", "default": "/"}, {"name": "user", "type": "long"}]}
    newer = {**old, "fields": [*new["fields"], {"name": "extra", "type": {"type": "array", "items": "string"}}]}
    ids = [registry.add("visits-value", one) for one in (old, new)]
    schema = resolve_schema("avro", None, registry=registry.url, subject="visits-value")
    ids.append(registry.add("visits-value", newer))
    decoder = AvroDecoder(schema)
    records = [
        header(ids[0]) + encoded(old, {"user": 1}),
        header(ids[1]) + encoded(new, {"page": "/a", "user": 2**40}),
        header(ids[2]) + encoded(newer, {"page": "/b", "user": 3, "extra": ["x"]}),
    ]
    rows = [decoder.decode(record) for record in records * 2]
    assert rows[:3] == [{"page": "/", "user": 1}, {"page": "/a", "user": 2**40}, {"page": "/b", "user": 3}]
    assert sum(request.startswith("GET /schemas/ids/") for request in registry.requests) == 3


TIME_MS = {"type": "long", "logicalType": "timestamp-millis"}
TIME_US = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL_MS = {"type": "long", "logicalType": "local-timestamp-millis"}
DAY = {"type": "int", "logicalType": "date"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FINE_PRICE = {**PRICE, "scale": 4}
FIXED_PRICE = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}
UUID = {"type": "string", "logicalType": "uuid"}
CLOCK = {"type": "int", "logicalType": "time-millis"}
NOON = datetime(2024, 10, 6, 12, tzinfo=UTC)
NOON_MS = 1_728_216_000_000
DAYS = 20_002


CASH = {"type": "record", "name": "n.Cash", "fields": [{"name": "amount", "type": PRICE}]}
CARD = {"type": "record", "name": "n.Card", "fields": [{"name": "amount", "type": FINE_PRICE}]}


def record_of(kind: Any, *fields: Any, **default: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [*fields, {"name": "a", "type": kind, **default}]}


@pytest.mark.parametrize(
    ("written", "value", "kind", "expected"),
    [
        ("long", NOON_MS, TIME_MS, NOON),
        ("long", NOON_MS * 1000, TIME_US, NOON),
        ("int", 1000, TIME_MS, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (TIME_MS, NOON, "long", NOON_MS),
        (TIME_MS, NOON, TIME_US, NOON),
        (TIME_US, NOON, LOCAL_MS, NOON.replace(tzinfo=None)),
        ("long", -1, LOCAL_MS, datetime(1969, 12, 31, 23, 59, 59, 999000, UTC).replace(tzinfo=None)),
        (DAY, NOON.date(), "int", DAYS),
        (DAY, NOON.date(), "long", DAYS),
        ("int", DAYS, DAY, NOON.date()),
        (PRICE, Decimal("1.50"), "bytes", b"\0\x96"),
        ("bytes", b"\xff\x6a", PRICE, Decimal("-1.50")),
        (PRICE, Decimal("1.50"), FINE_PRICE, Decimal("1.50")),
        ({"type": "fixed", "name": "F", "size": 2}, b"\0\x96", FIXED_PRICE, Decimal("1.50")),
        (UUID, ROW["ref"], "string", ROW["ref"]),
        (CLOCK, time(0, 0, 1), "int", 1000),
        (["null", "long"], NOON_MS, ["null", TIME_MS], NOON),
        ("long", NOON_MS, [TIME_MS, "null"], NOON),
        (["null", TIME_MS], NOON, "long", NOON_MS),
        (["null", "long"], None, ["null", TIME_MS], None),
        (["string", "long"], NOON_MS, TIME_MS, NOON),
        (
            ["null", CASH, CARD],
            ("n.Card", {"amount": Decimal("1.2345")}),
            ["null", CARD],
            {"amount": Decimal("1.2345")},
        ),
        ({"type": "array", "items": "long"}, [NOON_MS], {"type": "array", "items": TIME_MS}, [NOON]),
        ({"type": "map", "values": TIME_MS}, {"k": NOON}, {"type": "map", "values": "long"}, {"k": NOON_MS}),
        (
            {"type": "record", "name": "In", "fields": [{"name": "old", "type": "long"}]},
            {"old": NOON_MS},
            {"type": "record", "name": "In", "fields": [{"name": "at", "aliases": ["old"], "type": TIME_MS}]},
            {"at": NOON},
        ),
    ],
)
def test_logical_types_are_those_of_the_reader(
    registry: SchemaRegistry, written: Any, value: Any, kind: Any, expected: Any
) -> None:
    """A field whose logical type was added, removed or changed has the reader's type and the same meaning."""
    number = registry.add("r", record_of(written))
    decoder = AvroDecoder(schema_of(record_of(kind), registry))
    data = header(number) + encoded(record_of(written), {"a": value})
    assert decoder.decode(data) == {"a": expected}
    assert decoder.problem(data) is None


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (TIME_MS, NOON_MS, NOON),
        (["null", TIME_MS], NOON_MS, NOON),
        (DAY, DAYS, NOON.date()),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u00ff", b"\x01\xff"),
        (PRICE, "\u0000\u0096", Decimal("1.50")),
        (FIXED_PRICE, "\u0000\u0096", Decimal("1.50")),
        ("double", 1.5, 1.5),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": ["null", TIME_MS]}, {"k": NOON_MS, "n": None}, {"k": NOON, "n": None}),
        (
            {"type": "record", "name": "In", "fields": [
                {"name": "x", "type": "bytes", "default": "\u00ff"},
                {"name": "y", "type": "string"},
                {"name": "z", "type": {"type": "record", "name": "Deep", "fields": [
                    {"name": "at", "type": TIME_MS, "default": NOON_MS}]}, "default": {}}]},
            {"y": "q"},
            {"x": b"\xff", "y": "q", "z": {"at": NOON}},
        ),
    ],
)  # fmt: skip
def test_defaults_of_new_fields(registry: SchemaRegistry, kind: Any, default: Any, expected: Any) -> None:
    """A field that a record does not have gets its default, with the type of the field."""
    other = {"name": "b", "type": "int"}
    old = {"type": "record", "name": "R", "fields": [other]}
    number = registry.add("r", old)
    decoder = AvroDecoder(schema_of(record_of(kind, other, default=default), registry))
    data = header(number) + encoded(old, {"b": 1})
    assert [decoder.decode(data) for _ in range(2)] == [{"b": 1, "a": expected}] * 2
    assert decoder.problem(data) is None


def test_default_that_does_not_match(registry: SchemaRegistry) -> None:
    """Records without a field are malformed if its default cannot be read; the others are not."""
    other = {"name": "b", "type": "int"}
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
    old, new = {"type": "record", "name": "R", "fields": [other]}, record_of(inner, other, default={})
    numbers = [registry.add("r", one) for one in (old, new)]
    decoder = AvroDecoder(schema_of(new, registry))
    assert "No default value for field a" in (decoder.problem(header(numbers[0]) + encoded(old, {"b": 1})) or "")
    data = encoded(new, {"b": 1, "a": {"x": 2}})
    assert decoder.decode(header(numbers[1]) + data) == {"b": 1, "a": {"x": 2}}


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('"shop.Money"', {"cents": 5}),
        ('["null", "shop.Money"]', {"value": {"cents": 5}}),
        ('{"type": "array", "items": "shop.Money"}', {"value": [{"cents": 5}]}),
    ],
)
def test_schema_that_only_refers_to_a_type(text: str, row: dict[str, Any]) -> None:
    """A schema may be no more than the name of a type from another text."""
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    schema = RecordSchema("avro", (json.dumps(money), text))
    assert AvroDecoder(schema).decode(AvroEncoder(schema).encode(row)) == row


def test_times_without_a_zone_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time without a time zone is UTC, whatever the zone of the machine is."""
    schema = schema_of(record_of(TIME_MS))
    monkeypatch.setenv("TZ", "Europe/Berlin")
    tzset()
    try:
        data = AvroEncoder(schema).encode_plain({"a": "2024-10-06T12:00:00"})
    finally:
        monkeypatch.undo()
        tzset()
    assert AvroDecoder(schema).decode(data) == {"a": NOON}


def test_reasons_of_malformed_records(registry: SchemaRegistry) -> None:
    """Unknown ids, other formats and incompatible schemas make a record malformed, with the reason."""
    good = {"type": "record", "name": "V", "fields": [{"name": "user", "type": "long"}]}
    number = registry.add("v", good)
    proto = registry.add("p", 'syntax = "proto3"; message M {}', kind="PROTOBUF")
    other = registry.add("o", {**good, "fields": [{"name": "user", "type": "string"}]})
    bad = registry.add("b", '{"type": "no such type"}')
    decoder = AvroDecoder(schema_of(good, registry))
    body = encoded(good, {"user": 5})
    assert decoder.problem(header(number) + body) is None
    reasons = {
        b"": "too short",
        body: "too short",
        b"\x07" + header(number)[1:] + body: "first byte is 0x07",
        header(99) + body: "does not have schema 99",
        header(proto) + body: "PROTOBUF",
        header(other) + encoded("string", "abc"): "cannot be read with this job's",
        header(bad) + body: "the Avro schema is not valid",
        header(number): "the record is truncated",
        header(number) + body + b"\x00": "1 byte follows",
        header(number) + b"\xff" * 30 + b"\x01": "64 bits",
    }
    for data, reason in reasons.items():
        assert reason in (decoder.problem(data) or ""), data
    asked = len(registry.requests)
    assert decoder.problem(header(99) + body)
    assert len(registry.requests) == asked


def test_unreachable_registry_is_not_a_malformed_record(registry: SchemaRegistry) -> None:
    """While the registry is down, decoding fails; no record is dropped."""
    good = {"type": "record", "name": "V", "fields": [{"name": "user", "type": "long"}]}
    number = registry.add("v", good)
    decoder = AvroDecoder(schema_of(good, registry))
    registry.fault = (500, b"", {})
    with pytest.raises(ServiceUnreachable):
        decode_all(decoder, [header(number) + encoded(good, {"user": 5})])
    registry.fault = None
    assert decode_all(decoder, [header(number) + encoded(good, {"user": 5})])[1].to_pylist() == [False]


EMPTY = {"type": "record", "name": "R", "fields": []}
SHORT_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
HOSTILE: list[tuple[str, Any, bytes]] = [
    ("negative enum index", {"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01"),
    ("enum index too large", {"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
    ("negative union index", ["null", "string"], b"\x03"),
    ("union index too large", ["null", "string"], b"\x12"),
    ("endless number", "long", b"\xff" * 13 + b"\x01"),
    ("int of 40 bits", "int", b"\xff\xff\xff\xff\xff\x01"),
    ("boolean of 7", "boolean", b"\x07"),
    ("negative length", "string", b"\x05abc"),
    ("huge length", "string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fabc"),
    ("invalid UTF-8", "string", b"\x04\xff\xfe"),
    ("short fixed", {"type": "fixed", "name": "F", "size": 8}, b"abc"),
    ("short double", "double", b"abc"),
    ("huge array", {"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\x0f\x02\x02"),
    ("array of nulls", {"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00"),
    ("array of empty records", {"type": "array", "items": EMPTY}, b"\xfe\xff\xff\xff\x0f\x00"),
    ("timestamp out of range", {"type": "long", "logicalType": "timestamp-millis"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ("date out of range", {"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f"),
    ("decimal with too many digits", SHORT_DECIMAL, b"\x08\x7f\xff\xff\xff"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "data"), HOSTILE, ids=[name for name, _, _ in HOSTILE])
def test_hostile_values(name: str, kind: Any, data: bytes) -> None:
    """Each of these is malformed, alone and among good records."""
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": kind}]}
    decoder = AvroDecoder(schema_of(schema))
    assert decoder.problem(data)
    _, malformed = decode_all(decoder, [data, data])
    assert malformed.to_pylist() == [True, True]


def test_blocks_with_a_length_are_read() -> None:
    """Arrays and maps whose blocks have their length in front are valid."""
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}
    assert AvroDecoder(schema_of(schema)).decode(b"\x01\x02\x02\x00") == {"a": [1]}


def test_deep_nesting_is_malformed(registry: SchemaRegistry) -> None:
    """A record of a recursive writer that is nested 100,000 times is malformed and does not end the process."""
    reader = {"type": "record", "name": "N", "fields": [{"name": "id", "type": "long"}]}
    writer = {"type": "record", "name": "N", "fields": [*reader["fields"], {"name": "next", "type": ["null", "N"]}]}
    number = registry.add("n", writer)
    decoder = AvroDecoder(schema_of(reader, registry))
    assert decoder.decode(header(number) + b"\x02\x02" * 20 + b"\x02\x00") == {"id": 1}
    assert "nested too deeply" in (decoder.problem(header(number) + b"\x02\x02" * 100_000 + b"\x02\x00") or "")


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_damaged_records_never_raise_anything_else(seed: int, changes: int) -> None:
    """Flipped bytes and cuts give a row or a malformed record, never another error."""
    source = random.Random(seed)
    data = bytearray(AvroEncoder(schema_of(ORDER)).encode(ROW))
    for _ in range(changes):
        data[source.randrange(len(data))] = source.randrange(256)
    decoder = AvroDecoder(schema_of(ORDER))
    decode_all(decoder, [bytes(data), bytes(data[: source.randrange(len(data))])])


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}, "recursive-schema"),
        ({"type": "record", "name": "N", "fields": [{"name": "a", "type": ["string", "long"]}]}, "union-schema"),
        ({"type": "record", "name": "N", "fields": [{"name": "a", "type": "nothing"}]}, "bad-schema"),
        ({"type": "record", "name": "N"}, "bad-schema"),
        ("nothing", "bad-schema"),
    ],
)
def test_schemas_without_spark_types(schema: Any, code: str) -> None:
    """A schema that is invalid, recursive or a union of several types is refused."""
    with pytest.raises(JobRefused) as caught:
        resolve_schema("avro", schema=json.dumps(schema) if not isinstance(schema, str) else f'"{schema}"')
    assert caught.value.code == code


def test_schema_with_references(registry: SchemaRegistry) -> None:
    """A schema may use types of other subjects."""
    registry.add("money", {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]})
    order = {"type": "record", "name": "shop.Sale", "fields": [{"name": "total", "type": "shop.Money"}]}
    number = registry.add("s", order, references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    schema = resolve_schema("avro", None, registry=registry.url, subject="s")
    decoder = AvroDecoder(schema)
    assert decoder.row_type.ddl == "`total` STRUCT<`cents`: BIGINT>"
    assert decoder.decode(header(number) + b"\x0a") == {"total": {"cents": 5}}


def test_row_that_does_not_match() -> None:
    """A row that the schema cannot hold is an error of the job, with the reason."""
    with pytest.raises(ValueError, match="does not match the Avro schema"):
        AvroEncoder(schema_of(ORDER)).encode({**ROW, "status": "LOST"})
    with pytest.raises(ValueError, match="does not match the Avro schema"):
        AvroEncoder(schema_of(ORDER)).encode({**ROW, "more": 1})


def test_malformed_is_a_reason() -> None:
    """The reason of a malformed record is its message."""
    with pytest.raises(MalformedRecord, match="truncated"):
        AvroDecoder(schema_of(ORDER)).decode(b"")
