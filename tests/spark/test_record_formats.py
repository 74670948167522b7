"""Raw, Avro and Protobuf records on Spark: through the scenario, and from topic to topic on a real broker."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from broker_support import Broker
from formats.test_avro_records import ORDER, ROW, encoded, schema_of
from headwater import Console, Files, Job, Kafka, Memory
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import HeadwaterError, JobFailed, JobRefused, ServiceUnreachable
from headwater.formats.avro import AvroDecoder, AvroEncoder
from headwater.formats.confluent import header, split_header
from headwater.formats.schema import RecordSchema
from headwater.jobs.endpoints import Table
from headwater.spark.avro_schemas import sink_text
from headwater.spark.binary_records import decode_records
from headwater.spark.decoding import decode_lines
from headwater.spark.dropped import DeadLetterStore, DroppedRecords
from headwater.spark.dropped.store import ADDED_COLUMNS, COLUMNS
from headwater.spark.preflight import check_services
from headwater.spark.tables import prepare_table
from headwater.spark.writing import check_encodable, encode_for
from registry_support import SchemaRegistry
from spark import topic_support as topics
from spark.draining import drain_source

VISIT: dict[str, Any] = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NEWER = {**VISIT, "fields": [*VISIT["fields"], {"name": "page", "type": "string", "default": "/"}]}


def visit(user: str, time: str, **more: str) -> dict[str, Any]:
    return {"user": user, "at": f"2024-03-01T{time}:00Z", **more}


def per_hour(rows: DataFrame) -> DataFrame:
    """Visits per user and hour."""
    who, sent = F.max(F.col("who").cast("string")).alias("who"), F.max("timestamp").alias("sent")
    counts = rows.withWatermark("at", "1 hour").groupBy("user", F.window("at", "1 hour"))
    result = counts.agg(F.count("*").alias("count"), who, sent)
    return result.select("user", F.col("window.start").alias("hour"), "count", "who", "sent")


def unchanged(rows: DataFrame) -> DataFrame:
    """The rows as they come."""
    return rows


def test_types_as_spark_has_them(headwater_spark: SparkSession) -> None:
    """Columns have the types that Spark's own converter gives, and the values survive the way through Arrow."""
    jvm: Any = headwater_spark._jvm
    parsed = jvm.org.apache.avro.Schema.Parser().parse(json.dumps(ORDER))
    spark_type = jvm.org.apache.spark.sql.avro.SchemaConverters.toSqlType(parsed, False, "", -1).dataType()
    schema = schema_of(ORDER)
    raw = headwater_spark.createDataFrame(
        [(bytearray(encoded(ORDER, ROW)), 1), (None, 2), (b"?", 3)], "value BINARY, n INT"
    )
    decoded = decode_records(raw, schema, keep=["n"], malformed="bad")
    expected = spark_type.simpleString().replace("tick:time(6)", "tick:bigint")
    assert decoded.drop("bad", "n").schema.simpleString() == expected
    good, *bad = sorted(decoded.collect(), key=lambda row: row["n"])
    assert [(row["bad"], row["id"]) for row in bad] == [(True, None)] * 2
    assert {name: good[name] for name in ("id", "amount", "status", "tags", "day", "tick")} == {
        name: ROW[name] for name in ("id", "amount", "status", "tags", "day", "tick")
    }
    assert good["lines"][0]["price"] == ROW["lines"][0]["price"]  # type: ignore[index]


def test_avro_scenario(scenario, tmp_path: Path) -> None:
    """A test feeds rows, which are encoded and decoded again; late and malformed records are found."""
    (tmp_path / "visit.avsc").write_text(json.dumps(VISIT))
    source = Kafka("visits", str(tmp_path / "visit.avsc"), "avro", keep=("key:who", "timestamp"))
    s = scenario(Job("hourly", per_hour, reads=source, writes=Console(), mode="update"))
    first = {**visit("ann", "10:00"), "who": "k", "timestamp": "2024-03-01T10:00:01Z"}
    s.feed(first, visit("ann", "10:30"), b"\x02", "text").fails_to_decode(2).emits(
        {"user": "ann", "hour": "2024-03-01T10:00:00.000Z", "count": 2, "who": "k", "sent": "2024-03-01T10:00:01.000Z"}
    )
    assert s.feed(visit("bob", "15:00")).emitted
    assert s.feed(visit("ann", "10:40"), visit("ann", "15:01")).drops(1).emitted


def test_raw_and_protobuf_scenarios(scenario, tmp_path: Path) -> None:
    """Raw records have the columns of Kafka; Protobuf records are decoded by their schema file."""

    def texts(rows: DataFrame) -> DataFrame:
        assert rows.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
        first = F.element_at("headers", 1)
        return rows.select(F.col("value").cast("string"), "topic", "offset", first["value"].cast("string").alias("h"))

    s = scenario(Job("raw", texts, reads=Kafka("t", format="raw"), writes=Console()))
    s.feed({"value": "a", "offset": 7, "headers": {"trace": b"x"}}, b"b").emits(
        {"value": "a", "topic": "scenario", "offset": 7, "h": "x"},
        {"value": "b", "topic": "scenario", "offset": 0, "h": None},
    )
    (tmp_path / "v.proto").write_text('syntax = "proto3"; message V { string user = 1; optional int32 n = 2; }')
    source = Kafka("t", str(tmp_path / "v.proto"), "protobuf")
    s = scenario(Job("protobuf", unchanged, reads=source, writes=Console()))
    s.feed({"user": "ann", "n": 5}, {"user": "bob"}, b"\xff").emits({"user": "ann", "n": 5}, {"user": "bob", "n": None})
    s.feed(b"\x08").emits_nothing().fails_to_decode(1)


def test_kept_columns_do_not_replace_fields(headwater_spark: SparkSession) -> None:
    """A kept column that a field of the records is named after needs another name."""
    raw = headwater_spark.createDataFrame([(b"k", b'{"key": 1}')], "key BINARY, value BINARY")
    source = Kafka("t", schema="key INT", keep="key:k")
    assert decode_lines(headwater_spark, raw, source.decoding).collect() == [(1, b"k")]
    with pytest.raises(JobRefused) as caught:
        decode_lines(headwater_spark, raw, replace(source, keep="key").decoding)
    assert caught.value.code == "column-twice"


@pytest.mark.parametrize(
    ("sink", "code"),
    [
        (Kafka("t", format="avro", schema=json.dumps(VISIT)), "schema-mismatch"),
        (Kafka("t", format="avro", schema=json.dumps({**NEWER, "fields": NEWER["fields"][::2]})), "schema-mismatch"),
        (Kafka("t", format="raw"), "record-format"),
        (Kafka("t", format="protobuf"), "record-format"),
        (Kafka("t", format="avro"), "no-schema"),
        (Kafka("t", headers="user"), "record-format"),
        (Kafka("t", headers="nothing"), "record-format"),
    ],
)
def test_sinks_that_cannot_hold_the_columns(headwater_spark: SparkSession, sink: Kafka, code: str) -> None:
    """A sink whose format does not match the job's columns is refused before the job starts."""
    rows = headwater_spark.createDataFrame([], "user STRING, page STRING, n INT")
    with pytest.raises(JobRefused) as caught:
        check_encodable(sink, rows.schema)
    assert caught.value.code == code


DECIMALS = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}


@pytest.mark.usefixtures("headwater_spark")
@pytest.mark.parametrize(
    ("kind", "column", "fits"),
    [
        (DECIMALS, "DECIMAL(8,2)", True),
        (DECIMALS, "DECIMAL(5,0)", True),
        (DECIMALS, "DECIMAL(8,4)", False),
        (DECIMALS, "DECIMAL(8,1)", True),
        (DECIMALS, "DECIMAL(20,2)", True),
        ({"type": "array", "items": DECIMALS}, "ARRAY<DECIMAL(8,4)>", False),
        ({"type": "map", "values": "int"}, "MAP<STRING, INT>", True),
        ({"type": "map", "values": "int"}, "MAP<INT, INT>", False),
    ],
)
def test_types_that_a_schema_file_cannot_hold(kind: Any, column: str, fits: bool) -> None:
    """Decimals with more fractional digits than the schema has, and maps whose keys are not text, are refused at the start."""
    schema = {"type": "record", "name": "T", "fields": [{"name": "a", "type": kind}]}
    sink, columns = Kafka("t", format="avro", schema=json.dumps(schema)), StructType.fromDDL(f"a {column}")
    if fits:
        check_encodable(sink, columns)
        return
    with pytest.raises(JobRefused, match="column a is a") as refused:
        check_encodable(sink, columns)
    assert refused.value.code == "schema-mismatch"


@pytest.mark.usefixtures("headwater_spark")
def test_derived_names_are_unique() -> None:
    """Records at different places have different names, and those without a conflict are named after their place."""
    structs = "a STRUCT<b: STRUCT<x: INT>>, a_b STRUCT<y: INT>, a_b_2 STRUCT<z: INT>"
    sink = Kafka("orders", format="avro", registry="http://127.0.0.1:1")
    text = sink_text(sink, StructType.fromDDL(f"{structs}, c ARRAY<STRUCT<x: INT>>, c_item STRUCT<y: INT>"))
    row = {"a": {"b": {"x": 1}}, "a_b": {"y": 2}, "a_b_2": {"z": 3}, "c": [{"x": 4}], "c_item": {"y": 5}}
    schema = RecordSchema("avro", (text,))
    assert AvroDecoder(schema).decode(AvroEncoder(schema).encode(row)) == row
    names = [one["type"][1].get("name") for one in json.loads(text)["fields"]]
    assert names == ["orders_a", "orders_a_b_2", "orders_a_b_2_2", None, "orders_c_item_2"]


def test_avro_sink_with_a_schema_file(headwater_spark: SparkSession) -> None:
    """A row is written with the given schema, wider numbers and defaults included."""
    target = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "n", "type": "long"}, {"name": "x", "type": "string", "default": "none"}],
    }
    rows = headwater_spark.createDataFrame([(5, {"a": "b"})], "n INT, h MAP<STRING, STRING>")
    sink = Kafka("t", format="avro", schema=json.dumps(target), key="n", headers="h")
    row = encode_for(sink, rows).collect()[0]
    assert (row["key"], row["headers"]) == ("5", [("a", b"b")])
    assert AvroDecoder(schema_of(target)).decode(bytes(row["value"])) == {"n": 5, "x": "none"}


def test_derived_schema_holds_every_type(headwater_spark: SparkSession, registry: SchemaRegistry) -> None:
    """Without a schema, one is derived from the columns and registered; what is written with it reads back the same."""
    rows = headwater_spark.sql(
        "SELECT 1Y AS a, 2S AS b, 3 AS c, 4L AS d, 1.5F AS e, 2.5D AS f, true AS g, 's' AS h, X'01' AS i, DATE'2024-01-02' AS j,"
        " TIMESTAMP'2024-01-02 03:04:05.000006' AS k, TIMESTAMP_NTZ'2024-01-02 03:04:05' AS l, 1.25BD AS m, array(1, null) AS n,"
        " map('x', named_struct('y', 1)) AS o, named_struct('p', array(named_struct('q', 'z'))) AS p, CAST(null AS INT) AS q"
    )
    sink = Kafka("all-types", format="avro", registry=registry.url)
    encode = encode_for(sink, rows)
    schema = RecordSchema("avro", (sink_text(sink, rows.schema),), registry=registry.url)
    decoded = decode_records(encode, schema, keep=[], malformed="bad").drop("bad")
    as_read = rows.withColumns({"a": F.col("a").cast("int"), "b": F.col("b").cast("int")})
    assert decoded.collect() == as_read.collect()
    refused = headwater_spark.sql("SELECT INTERVAL 1 DAY AS x")
    with pytest.raises(JobRefused, match="no type for interval"):
        check_encodable(sink, refused.schema)


def test_table_of_an_earlier_version_gets_the_new_column(headwater_spark: SparkSession) -> None:
    """A table of dead letters that was made without the newest columns is extended and keeps its rows."""
    old = {name: kind for name, kind in COLUMNS.items() if name not in ADDED_COLUMNS}
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in old.items())
    table = Table("old_dead_letters")
    empty = headwater_spark.createDataFrame([], ddl)
    prepare_table(headwater_spark, table, empty.schema)
    headwater_spark.createDataFrame([("j", "t/0/1", *[None] * (len(old) - 2))], ddl).write.insertInto(table.name)
    store = DeadLetterStore(headwater_spark, table, "j")
    store.prepare()
    record = {"batch_id": 1, "reason": "malformed", "kind": "kafka", "topic": "t", "partition": 0, "offset": 2}
    store.save([{**record, "value": None, "value_base64": "AP8="}])
    rows = {row["position"]: row["value_bytes"] for row in headwater_spark.table(table.name).collect()}
    assert rows == {"t/0/1": None, "t/0/2": b"\x00\xff"}
    headwater_spark.sql(f"DROP TABLE {table.name}")
    prepare_table(headwater_spark, table, empty.schema)
    assert headwater_spark.table(table.name).columns == list(COLUMNS)


def send(broker: Broker, topic: str, *values: bytes | None, key: str = "k") -> None:
    producer = Producer(broker.connection.client_settings())
    for value in values:
        producer.produce(topic, value, key, headers=[("trace", b"t1"), ("empty", None)])
    assert producer.flush(120) == 0


def messages(broker: Broker, topic: str) -> list[Any]:
    consumer = Consumer({**broker.connection.client_settings(), "group.id": "read", "enable.auto.commit": False})
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [consumer.poll(120) for _ in range(end)]
    finally:
        consumer.close()


def test_avro_from_topic_to_topic(
    headwater_spark: SparkSession, broker: Broker, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """Records of two writers are counted and written as Avro with key and headers; nothing malformed or late is lost."""
    for name in ("avro-visits", "avro-counts"):
        topics.make(broker, name)
    first = registry.add("avro-visits-value", VISIT)
    newer = registry.add("avro-visits-value", NEWER)

    def record(number: int, row: dict[str, Any]) -> bytes:
        schema = VISIT if number == first else NEWER
        return header(number) + AvroEncoderFor(schema)(row)

    def traced(rows: DataFrame) -> DataFrame:
        counted = rows.withWatermark("at", "1 hour").groupBy("user", F.window("at", "1 hour"))
        result = counted.agg(
            F.count("*").alias("visits"), F.max("page").alias("page"), F.first("headers").alias("headers")
        )
        return result.select("user", F.col("window.start").alias("hour"), "visits", "page", "headers")

    source = Kafka(
        "avro-visits",
        format="avro",
        servers=broker.bootstrap,
        registry=registry.url,
        keep=("headers",),
        options={"maxOffsetsPerTrigger": "4"},
    )
    sink = Kafka(
        "avro-counts", format="avro", servers=broker.bootstrap, registry=registry.url, key="user", headers="headers"
    )
    folder = tmp_path / "dead"
    job = Job("avro-counts", traced, source, sink, "update", "available-now", dead_letters=f"files:{folder}")
    check_services(job)
    bad = [b"{}", header(77) + b"\x02a\x02", record(first, visit("ann", "10:00")) + b"\x00", None]
    send(
        broker,
        "avro-visits",
        record(first, visit("ann", "10:00")),
        record(newer, visit("ann", "10:10", page="/a")),
        *bad[:2],
    )
    send(broker, "avro-visits", record(newer, visit("bob", "15:00")), *bad[2:], record(first, visit("bob", "15:01")))
    send(broker, "avro-visits", *[record(newer, visit("eve", "15:02"))] * 4)
    send(broker, "avro-visits", record(first, visit("ann", "10:59")))
    progress = drain_source(headwater_spark, job, tmp_path / "checkpoint")
    assert sum(batch.malformed for batch in progress) == 4
    assert sum(batch.dropped for batch in progress) == 1

    counts = registry.subjects["avro-counts-value"]
    assert len(counts) == 1
    decoder = AvroDecoder(RecordSchema("avro", (counts[0]["schema"],), registry=registry.url))
    written = messages(broker, "avro-counts")
    rows = {
        (one.key().decode(), decoder.decode(one.value())["visits"], decoder.decode(one.value())["page"])
        for one in written
    }
    assert ("ann", 2, "/a") in rows
    assert ("bob", 2, "/") in rows
    assert {split_header(one.value())[0] for one in written} == {counts[0]["id"]}
    assert {tuple(one.headers()) for one in written} == {(("trace", b"t1"), ("empty", None))}

    letters = [json.loads(line) for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]
    malformed = {one["offset"]: one for one in letters if one["reason"] == "malformed"}
    assert [base64.b64decode(malformed[offset]["value_base64"]) for offset in (2, 3, 5)] == bad[:3]
    assert [malformed[offset]["detail"] for offset in (2, 3, 5, 6)] == [
        "2 bytes are too short for the header of a schema registry, which has 5",
        "the schema registry does not have schema 77",
        "1 byte follows the record",
        "the record has no value",
    ]
    assert "value_base64" not in malformed[6]
    (late,) = [one for one in letters if one["reason"] == "late"]
    assert json.loads(late["value"]) == {"user": "ann", "at": "2024-03-01T10:59:00+00:00", "page": "/"}
    assert base64.b64decode(late["value_base64"]) == record(first, visit("ann", "10:59"))


@pytest.mark.slow
def test_registry_outage_loses_nothing(
    headwater_spark: SparkSession, broker: Broker, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """While the registry is down, a batch with an unknown schema fails; the next run reads it, and nothing is lost."""
    topics.make(broker, "outage")
    number = registry.add("outage-value", NEWER)
    send(broker, "outage", header(number) + AvroEncoderFor(NEWER)(visit("zoe", "15:03", page="/z")), b"bad")
    source = Kafka("outage", json.dumps(VISIT), "avro", broker.bootstrap, registry=registry.url)
    job = Job("outage", unchanged, source, Files(str(tmp_path / "out"), format="json"), trigger="available-now")
    registry.only_fault = "/schemas/ids/"
    with pytest.raises(JobFailed) as caught:
        drain_source(headwater_spark, job, tmp_path / "checkpoint")
    assert caught.value.evidence["cause"] == "the schema registry gave an unexpected answer"
    assert "start the job again" in (caught.value.remedy or "")
    registry.only_fault = None
    batches = drain_source(headwater_spark, job, tmp_path / "checkpoint")
    assert [(batch.input_rows, batch.malformed) for batch in batches] == [(2, 1)]
    assert [row["user"] for row in headwater_spark.read.json(str(tmp_path / "out")).collect()] == ["zoe"]


class AvroEncoderFor:
    """Encodes rows of a test, without a header."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._encoder = AvroEncoder(schema_of(schema))

    def __call__(self, row: dict[str, Any]) -> bytes:
        return self._encoder.encode_plain(row)


def test_raw_and_kept_columns_from_a_topic(headwater_spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """A raw job sees every record with its headers; kept columns are added to decoded rows, in re-read batches too."""
    topics.make(broker, "raw-visits")
    send(broker, "raw-visits", b'{"user": "ann", "at": "2024-03-01T10:00:00Z"}', b"\xff\xfe", None)
    raw = Job("raw", unchanged, Kafka("raw-visits", format="raw", servers=broker.bootstrap), Memory("raw_rows"))
    drain_source(headwater_spark, replace(raw, trigger="available-now"), tmp_path / "raw")
    rows = headwater_spark.table("raw_rows").collect()
    assert [(bytes(row["key"]), row["offset"], row["value"]) for row in rows][1:] == [
        (b"k", 1, b"\xff\xfe"),
        (b"k", 2, None),
    ]
    assert [tuple(one) for one in rows[0]["headers"]] == [("trace", b"t1"), ("empty", None)]

    kept = Kafka("raw-visits", "user STRING, at TIMESTAMP", servers=broker.bootstrap, keep="key,timestamp:sent,headers")
    folder = tmp_path / "out"
    job = Job("kept", unchanged, kept, Files(str(folder), format="json"), trigger="available-now")
    drain_source(headwater_spark, job, tmp_path / "kept")
    (row,) = headwater_spark.read.json(str(folder)).collect()
    assert (row["user"], row["key"]) == ("ann", "aw==")
    found = DroppedRecords(headwater_spark, job, History(LocalTree(tmp_path / "kept"))).in_batch(0)
    assert [(one.detail, one.value_base64) for one in found] == [
        ("not valid UTF-8", "//4="),
        ("the record has no value", None),
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"format": "avro"}, "no-schema"),
        ({"format": "avro", "schema": "missing.avsc"}, "no-schema-file"),
        ({"format": "avro", "registry": "http://127.0.0.1:1"}, "registry-unreachable"),
        ({"format": "protobuf", "schema": '{"type": "int"}'}, "no-schema-file"),
        ({"format": "xml"}, "record-format"),
        ({"format": "json", "registry": "http://127.0.0.1:1"}, "record-format"),
        ({"format": "json", "message": "M"}, "record-format"),
        ({"format": "json", "keep": "value"}, "record-format"),
        ({"format": "raw", "keep": "key"}, "record-format"),
        ({"format": "json", "headers": "h"}, "record-format"),
    ],
)
def test_bad_sources_are_refused_before_spark_starts(options: dict[str, str], code: str) -> None:
    """A missing schema, a registry that does not answer and options that contradict each other are errors at once."""
    job = Job("j", unchanged, Kafka("t", servers="127.0.0.1:1", **options), Console())
    with pytest.raises(HeadwaterError) as caught:
        check_services(job)
    assert caught.value.code == code


def test_bad_sinks_are_refused_before_spark_starts() -> None:
    """A sink with an unreachable registry or an invalid schema file is refused at once."""
    for options, code in (
        ({"registry": "http://127.0.0.1:1"}, "registry-unreachable"),
        ({"schema": "missing.avsc"}, "no-schema-file"),
        ({"schema": "{}"}, "bad-schema"),
    ):
        job = Job("j", unchanged, Files("."), Kafka("t", format="avro", servers="127.0.0.1:1", **options))
        with pytest.raises((JobRefused, ServiceUnreachable)) as caught:
            check_services(job)
        assert caught.value.code == code
