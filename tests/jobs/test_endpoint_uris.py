"""Sources and sinks as URIs."""

from __future__ import annotations

import pytest

from headwater import Console, Delta, Files, Iceberg, Kafka, Memory, Postgres, Rate, Socket, Table
from headwater.core.errors import UsageProblem, redact
from headwater.jobs.endpoints import Sink, Source
from headwater.jobs.uris import sink_from_uri, source_from_uri, uri_of

OWN = Kafka("visits", schema="a INT", key="a", decode={"timestampFormat": "yyyy"})


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        (
            "kafka://h:1/t?startingOffsets=latest",
            Kafka("t", "a INT", servers="h:1", options={"startingOffsets": "latest"}, decode=OWN.decode),
        ),
        (
            "kafka://h:1/t?format=csv&sep=;&kafka.group.id=g",
            Kafka("t", "a INT", "csv", "h:1", None, {"kafka.group.id": "g"}, {**OWN.decode, "sep": ";"}),
        ),
        (
            "kafka://h:1/t?allowTrailingComma=true",
            Kafka("t", "a INT", servers="h:1", decode={**OWN.decode, "allowTrailingComma": "true"}),
        ),
        (
            "kafka://h:1/t?format=avro&schema=o.avsc&registry=http://r:1&subject=s&keep=key,timestamp:sent&maxOffsetsPerTrigger=5",
            Kafka(
                "t",
                "o.avsc",
                "avro",
                "h:1",
                options={"maxOffsetsPerTrigger": "5"},
                decode=OWN.decode,
                registry="http://r:1",
                subject="s",
                keep="key,timestamp:sent",
            ),
        ),
        (
            "kafka://h:1/t?format=protobuf&message=M",
            Kafka("t", None, "protobuf", "h:1", decode=OWN.decode, message="M"),
        ),
        ("kafka://h:1/t?format=raw", Kafka("t", "a INT", "raw", "h:1", decode=OWN.decode)),
        ("files:in?latestFirst=true", Files("in", "a INT", "json", {"latestFirst": "true"}, OWN.decode)),
        (
            "files:in?format=csv&header=true",
            Files("in", "a INT", "csv", {"header": "true"}, {**OWN.decode, "header": "true"}),
        ),
        ("files:s3a://b/in?format=parquet", Files("s3a://b/in", "a INT", "parquet", {}, OWN.decode)),
        ("socket://127.0.0.1:9994", Socket("127.0.0.1", 9994, "a INT", "json", {}, OWN.decode)),
        ("rate:?rowsPerSecond=1000&numPartitions=2", Rate(1000, {"numPartitions": "2"})),
        ("table:visits", Table("visits")),
    ],
)
def test_sources(uri: str, source: Source) -> None:
    """A source that replaces another decodes the same records, in the same format unless its URI has one."""
    assert source_from_uri(uri, OWN) == source


def test_records_of_a_source_without_lines_are_json_elsewhere() -> None:
    """A job that reads parquet reads JSON if Kafka replaces its files."""
    assert source_from_uri("kafka://h:1/t", Files("in", "a INT", "parquet")) == Kafka("t", "a INT", servers="h:1")
    assert source_from_uri("files:in", Socket()).format == "text"  # type: ignore[union-attr]


def test_tables_keep_what_the_uri_does_not_name() -> None:
    """A table that replaces another one of its format has its keys, partitions and catalog."""
    merged = Delta("a", "day", "k", {"mergeSchema": "true"})
    assert sink_from_uri("delta:b", merged) == Delta("b", "day", "k")
    assert sink_from_uri("delta:b?merge_on=x,y", merged) == Delta("b", "day", "x,y")
    assert sink_from_uri("delta:b", Console()) == Delta("b")
    lake = Iceberg("lake.shop.a", "day", {"type": "hadoop", "warehouse": "w"})
    assert sink_from_uri("iceberg:lake.shop.b", lake) == Iceberg("lake.shop.b", "day", lake.catalog)
    assert sink_from_uri("iceberg:other.shop.b", lake) == Iceberg("other.shop.b", "day")


@pytest.mark.parametrize(
    "table",
    [
        Delta("/lake/t", "day", "a,b", {"startingVersion": "3"}),
        Delta("s3a://bucket/t"),
        Iceberg("lake.shop.t", "day", {"type": "hadoop", "warehouse": "/lake"}, {"fanout-enabled": "false"}),
    ],
)
def test_recorded_table_is_the_same_table(table: Delta | Iceberg) -> None:
    """The URI of a table gives back the table, as a source and as a sink."""
    assert source_from_uri(uri_of(table), OWN) == table
    assert sink_from_uri(uri_of(table), Console()) == table


@pytest.mark.parametrize(
    ("name", "value", "recorded"),
    [
        ("jdbc.password", "hid&den", "***"),
        ("uri", "jdbc:postgresql://db/catalog?user=ann&password=hidden", "jdbc:postgresql://db/catalog?user=ann&password=***"),
        ("uri", "jdbc:sqlserver://db;user=ann;password=hidden", "jdbc:sqlserver://db;user=ann;password=***"),
        ("uri", "jdbc:sqlserver://db;password=hidden;ssl=true", "jdbc:sqlserver://db;password=***;ssl=true"),
        ("warehouse", "/data/in;token=5/x", "/data/in;token=5/x"),
        ("uri", "postgresql+psycopg2://ann:hidden@db/c", "postgresql+psycopg2://ann:***@db/c"),
        ("uri", "https://ann:hidden@catalog/", "https://ann:***@catalog/"),
        ("header.Authorization", "Bearer hidden", "***"),
        ("oauth2.token", "hidden", "***"),
        ("credential", "ann:hidden", "***"),
    ],
)  # fmt: skip
def test_passwords_of_a_catalog_are_not_recorded(name: str, value: str, recorded: str) -> None:
    """The URI of an Iceberg table hides the passwords of its catalog; in the job's own table they are found again."""
    table = Iceberg("lake.shop.t", catalog={"type": "jdbc", name: value})
    uri = uri_of(table)
    assert "hid" not in uri + repr(table) + redact(uri)
    assert sink_from_uri(uri, Console()) == Iceberg("lake.shop.t", catalog={"type": "jdbc", name: recorded})
    assert sink_from_uri(uri, table) == source_from_uri(uri, table) == table


@pytest.mark.parametrize(
    "text",
    [
        "iceberg:l.d.t?catalog.uri=jdbc:postgresql://db/c%3Fuser%3Dann%26password%3Dhidden%26ssl%3Dtrue",
        "iceberg:l.d.t?catalog.uri=jdbc:postgresql://db/c%3Fuser=ann%26password=hidden",
        "iceberg:l.d.t?catalog.uri=postgresql%2Bpsycopg2%3A%2F%2Fann%3Ahidden%40db%2Fc",
        "iceberg:l.d.t?catalog.uri=https://ann:hidden%40cat/&catalog.type=rest",
        "postgresql+psycopg2://ann:hid/den@db/c",
        "host=db user=ann password=hidden dbname=c",
        "host=db password='hid den' dbname=c",
    ],
)
def test_encoded_passwords_are_redacted(text: str) -> None:
    """A password is hidden in a URL that is the value of an option, percent-encoded or not."""
    assert "hid" not in redact(text)
    assert "den" not in redact(text)
    assert redact(redact(text)) == redact(text)


def test_other_values_are_not_redacted() -> None:
    """Addresses with ports and encoded at signs are shown."""
    for uri in ("kafka://h:1,i:2/t?a=b%40c", "iceberg:l.d.t?catalog.uri=thrift://h:9083", "files:in?sep=;&header=true"):
        assert redact(uri) == uri


AVRO = Kafka("visits", "visit.avsc", "avro", registry="http://u:pw@r:1/x", subject="s", keep=("key",))


@pytest.mark.parametrize(
    ("uri", "schema", "registry", "subject"),
    [
        ("kafka://h:1/t", "visit.avsc", "http://u:pw@r:1/x", "s"),
        ("kafka://h:1/t?registry=http://***@r:1/x", "visit.avsc", "http://u:pw@r:1/x", "s"),
        ("kafka://h:1/t?registry=http://other:1", None, "http://other:1", "s"),
        ("kafka://h:1/t?schema=other.avsc", "other.avsc", None, "s"),
        ("kafka://h:1/t?format=protobuf&schema=v.desc", "v.desc", None, None),
        ("kafka://h:1/t?format=json", None, None, None),
    ],
)
def test_schemas_are_inherited_within_a_format(
    uri: str, schema: str | None, registry: str | None, subject: str | None
) -> None:
    """A topic that replaces another inherits schema and registry if its records have the same format."""
    source = source_from_uri(uri, AVRO)
    assert isinstance(source, Kafka)
    assert (source.schema, source.registry, source.subject, source.keep) == (schema, registry, subject, ("key",))


def test_avro_schema_is_no_schema_for_lines() -> None:
    """Files that replace a topic with Avro records have JSON records, and no schema."""
    assert source_from_uri("files:in", AVRO) == Files("in", None, "json")


def test_recorded_source_is_the_same_source() -> None:
    """The URI that a checkpoint records gives back the source that it was made from, login included."""
    assert source_from_uri(uri_of(AVRO), AVRO) == Kafka(
        "visits", "visit.avsc", "avro", registry="http://u:pw@r:1/x", subject="s", keep="key"
    )


@pytest.mark.parametrize(
    ("uri", "sink"),
    [
        ("kafka://h:1/t", Kafka("t", servers="h:1", key="a")),
        (
            "kafka://h:1/t?key=b,c&compression=gzip",
            Kafka("t", servers="h:1", key="b,c", options={"compression": "gzip"}),
        ),
        (
            "kafka://h:1/t?format=avro&registry=http://r:1&headers=h",
            Kafka("t", None, "avro", "h:1", "a", registry="http://r:1", headers="h"),
        ),
        ("files:out", Files("out")),
        ("files:out?format=json", Files("out", format="json")),
        ("table:t?format=orc", Table("t", format="orc")),
        ("console:", Console()),
        ("memory:m", Memory("m")),
        (
            "postgresql://u:p%40ss@h/db?table=s.t&key=a,b&sslmode=require",
            Postgres("postgresql://u:p%40ss@h:5432/db?sslmode=require", "s.t", "a,b"),
        ),
        (
            "delta:/lake/t?partition_by=day&merge_on=a,b&mergeSchema=true",
            Delta("/lake/t", "day", "a,b", {"mergeSchema": "true"}),
        ),
        (
            "iceberg:lake.shop.t?catalog.type=hadoop&catalog.warehouse=/lake&fanout-enabled=false",
            Iceberg(
                "lake.shop.t", catalog={"type": "hadoop", "warehouse": "/lake"}, options={"fanout-enabled": "false"}
            ),
        ),
    ],
)
def test_sinks(uri: str, sink: Sink) -> None:
    """A URI replaces the sink completely, except for the job's Kafka key."""
    assert sink_from_uri(uri, OWN) == sink


@pytest.mark.parametrize(
    ("uri", "role"),
    [
        ("console:", "source"),
        ("memory:m", "source"),
        ("postgresql://u@h/db?table=t&key=a", "source"),
        ("socket://h:1", "sink"),
        ("rate:", "sink"),
        ("files:in?format=avro", "source"),
        ("kafka://h:1/t?format=parquet", "source"),
        ("kafka://h:1/t?format=protobuf", "sink"),
        ("socket://h:1?format=avro", "source"),
        ("rate:?rowsPerSecond=many", "source"),
        ("postgresql://u@h/db?table=t", "sink"),
        ("visits.json", "source"),
        ("ftp://h/x", "sink"),
    ],
)
def test_invalid_uris(uri: str, role: str) -> None:
    """A URI of the wrong kind or form is refused with the URI and a valid form."""
    read = source_from_uri if role == "source" else sink_from_uri
    with pytest.raises(UsageProblem) as refused:
        read(uri, OWN)  # type: ignore[operator]
    assert (refused.value.code, refused.value.exit_status) == ("bad-uri", 2)
    assert refused.value.evidence["found"] == uri
    assert ":" in (refused.value.remedy or "")


@pytest.mark.parametrize(
    ("endpoint", "uri"),
    [
        (OWN, "kafka://127.0.0.1:9092/visits?key=a"),
        (
            Kafka("t", options={"kafka.sasl.jaas.config": "secret"}),
            "kafka://127.0.0.1:9092/t?kafka.sasl.jaas.config=***",
        ),
        (
            AVRO,
            "kafka://127.0.0.1:9092/visits?format=avro&schema=visit.avsc&registry=http://***@r:1/x&subject=s&keep=key",
        ),
        (
            Kafka("t", '{"type": "string"}', "avro", keep=("key:k", "offset")),
            "kafka://127.0.0.1:9092/t?format=avro&keep=key:k,offset",
        ),
        (Files("in", format="csv", options={"header": "true"}), "files:in?format=csv&header=true"),
        (Rate(7, {"numPartitions": "1"}), "rate:?rowsPerSecond=7&numPartitions=1"),
        (Socket(port=1), "socket://127.0.0.1:1"),
        (Table("t"), "table:t"),
        (Console(), "console:"),
        (Memory("m"), "memory:m"),
        (
            Postgres("postgresql://u:pw@h/db?sslmode=x", "t", ("a", "b")),
            "postgresql://u:***@h/db?table=t&key=a,b&sslmode=x",
        ),
    ],
)
def test_recorded_uris(endpoint: Source | Sink, uri: str) -> None:
    """A source or sink is recorded as its URI, without secrets."""
    assert uri_of(endpoint) == uri
