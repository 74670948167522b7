"""Sources and sinks as URIs."""

from __future__ import annotations

import pytest

from headwater import Console, Files, Kafka, Memory, Postgres, Rate, Socket, Table
from headwater.core.errors import UsageProblem
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


@pytest.mark.parametrize(
    ("uri", "sink"),
    [
        ("kafka://h:1/t", Kafka("t", servers="h:1", key="a")),
        (
            "kafka://h:1/t?key=b,c&compression=gzip",
            Kafka("t", servers="h:1", key="b,c", options={"compression": "gzip"}),
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
        (Files("in", format="csv", options={"header": "true"}), "files:in?format=csv&header=true"),
        (Rate(7, {"numPartitions": "1"}), "rate:?rowsPerSecond=7&numPartitions=1"),
        (Socket(port=1), "socket://127.0.0.1:1"),
        (Table("t"), "table:t"),
        (Console(), "console:"),
        (Memory("m"), "memory:m"),
        (Postgres("postgresql://u:pw@h/db?sslmode=x", "t", ("a", "b")), "postgresql://u:***@h/db?table=t&key=a,b"),
    ],
)
def test_recorded_uris(endpoint: Source | Sink, uri: str) -> None:
    """A source or sink is recorded as its URI, without secrets."""
    assert uri_of(endpoint) == uri
