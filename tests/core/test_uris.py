"""URIs of sources and sinks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import UsageProblem
from headwater.core.uris import FORMS, Uri, parse_uri, redact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "kafka://127.0.0.1:9092/visits?startingOffsets=earliest",
            Uri("kafka", "127.0.0.1", 9092, "visits", {"startingOffsets": "earliest"}, address="127.0.0.1:9092"),
        ),
        ("kafka://a,b:1/x,y", Uri("kafka", "a", 9092, "x,y", address="a:9092,b:1")),
        ("kafka://[::1]:9092/t", Uri("kafka", "::1", 9092, "t", address="[::1]:9092")),
        ("kafka://h?subscribePattern=v.*", Uri("kafka", "h", 9092, "", {"subscribePattern": "v.*"}, address="h:9092")),
        (
            "files:in?format=json&latestFirst=true",
            Uri("files", path="in", options={"format": "json", "latestFirst": "true"}),
        ),
        ("files:/tmp/day-?.csv?format=csv", Uri("files", path="/tmp/day-?.csv", options={"format": "csv"})),
        ("files:/tmp/day-?.csv", Uri("files", path="/tmp/day-?.csv")),
        ("files:///tmp/in", Uri("files", path="/tmp/in")),
        ("files:s3a://bucket/in?format=orc", Uri("files", path="s3a://bucket/in", options={"format": "orc"})),
        ("files:s3://bucket/in", Uri("files", path="s3a://bucket/in")),
        ("s3://bucket/in?format=csv", Uri("files", path="s3a://bucket/in", options={"format": "csv"})),
        ("s3a://bucket/day-?.csv", Uri("files", path="s3a://bucket/day-?.csv")),
        (
            "files:in?sep=%26&timestampFormat=HH+00",
            Uri("files", path="in", options={"sep": "&", "timestampFormat": "HH+00"}),
        ),
        ("socket://127.0.0.1:9994", Uri("socket", "127.0.0.1", 9994, address="127.0.0.1:9994")),
        ("socket://localhost", Uri("socket", "localhost", 9994, address="localhost:9994")),
        ("rate:?rowsPerSecond=1000", Uri("rate", options={"rowsPerSecond": "1000"})),
        ("rate:", Uri("rate")),
        ("table:lake.visits", Uri("table", path="lake.visits")),
        ("console:", Uri("console")),
        ("memory:counts", Uri("memory", path="counts")),
        (
            "postgresql://ann:p%40ss@db:5433/shop?table=T&key=a,b",
            Uri("postgresql", "db", 5433, "shop", {"table": "T", "key": "a,b"}, "ann", "p@ss", "db:5433"),
        ),
        (
            "delta:lake/sales?merge_on=a,b",
            Uri("delta", path="lake/sales", options={"merge_on": "a,b"}),
        ),
        ("delta:///lake/sales", Uri("delta", path="/lake/sales")),
        ("delta:s3://bucket/sales", Uri("delta", path="s3a://bucket/sales")),
        ("iceberg:lake.shop.sales?a=1", Uri("iceberg", path="lake.shop.sales", options={"a": "1"})),
        ("postgres://db/shop?table=T", Uri("postgresql", "db", 5432, "shop", {"table": "T"}, address="db:5432")),
    ],
)
def test_every_form_is_parsed(text: str, expected: Uri) -> None:
    """Each documented form is parsed into its parts."""
    assert parse_uri(text) == expected


@pytest.mark.parametrize(
    ("text", "part_of_remedy"),
    [
        ("kafka://127.0.0.1:9092", FORMS["kafka"]),
        ("kafka:127.0.0.1:9092/visits", FORMS["kafka"]),
        ("kafka://127.0.0.1:port/visits", FORMS["kafka"]),
        ("kafka://127.0.0.1:99999/visits", FORMS["kafka"]),
        ("kafka://h/t?a=1&a=2", FORMS["kafka"]),
        ("kafka://h/t?earliest", FORMS["kafka"]),
        ("files:", FORMS["files"]),
        ("files://in", FORMS["files"]),
        ("socket://", FORMS["socket"]),
        ("socket://ann:secret@127.0.0.1:1", FORMS["socket"]),
        ("socket://127.0.0.1:1/x", FORMS["socket"]),
        ("console:x", FORMS["console"]),
        ("rate:1000", FORMS["rate"]),
        ("memory:", FORMS["memory"]),
        ("table:", FORMS["table"]),
        ("postgresql://h/db", FORMS["postgresql"]),
        ("postgresql://h?table=T", FORMS["postgresql"]),
        ("delta:", FORMS["delta"]),
        ("delta://lake", FORMS["delta"]),
        ("delta:s3://key@bucket/sales", FORMS["delta"]),
        ("iceberg:sales", FORMS["iceberg"]),
        ("iceberg:lake..sales", FORMS["iceberg"]),
        ("data/in", "files:data/in?format=json"),
        ("file:///data/in", "files:/data/in?format=json"),
        ("s3://", FORMS["files"]),
        ("files:s3a:///", FORMS["files"]),
        ("s3a://key@bucket/in", FORMS["files"]),
        ("gs://bucket/in?format=csv", "files:gs://bucket/in?format=csv"),
        ("pulsar://h/t", FORMS["kafka"]),
        ("", FORMS["kafka"]),
    ],
)
def test_wrong_uri_is_refused_with_the_right_form(text: str, part_of_remedy: str) -> None:
    """An invalid URI is a usage error whose remedy shows the right form."""
    with pytest.raises(UsageProblem) as refused:
        parse_uri(text)
    assert refused.value.code == "bad-uri"
    assert part_of_remedy in (refused.value.remedy or "")


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ann:hidden@db/shop?table=T",
        "postgresql://ann:hid/hidden@den@db/shop?table=T",
        "postgresql://ann:hidden@db:x/shop",
        "postgresql://db/shop?table=T&password=hidden",
        "kafka://h/t?kafka.sasl.jaas.config=x%20hidden",
        "files:s3a://key:hidden@bucket/in",
        "kafka://h/t?ssl.truststore.password=hidden&a",
        "s3a://key:hidden@bucket/in",
        "gs://key:hidden@bucket/in",
        "kafka://ann:hidden@h:9092/t",
        "kafka://ann:hidden@h:9092/t?kafka.ssl.keystore.password=hidden",
        "socket://ann:hidden@h:9994",
    ],
)
def test_passwords_never_show(text: str) -> None:
    """Neither a URI nor the error for an invalid one shows its password."""
    try:
        uri = parse_uri(text)
        shown = f"{uri} {uri!r} {uri.redacted()}"
    except UsageProblem as refused:
        shown = str(refused)
    assert "hidden" not in shown
    assert "***" in shown


@pytest.mark.parametrize("login", ["ann", "ann:secret", "ann:", ":secret"])
def test_login_in_a_kafka_uri(login: str) -> None:
    """A login before the address of a broker is refused, not ignored; the remedy names the options that take it."""
    with pytest.raises(UsageProblem) as refused:
        parse_uri(f"kafka://{login}@db:9092/visits?startingOffsets=earliest")
    assert refused.value.code == "bad-uri"
    assert refused.value.remedy is not None
    assert refused.value.remedy.startswith("kafka://db:9092/visits with the options kafka.security.protocol, ")
    assert "kafka.sasl.jaas.config" in refused.value.remedy
    assert "HEADWATER_KAFKA_PROPERTIES" in refused.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "kafka://h:9092/t?registry=http://ann:secret@r:8081&subject=s",
        "kafka://h:9092/t?format=avro&registry=http%3A%2F%2Fann%3Asecret%40r%3A8081",
        "kafka://h:9092/t?registry=https://a%40b:sec%2Fret@r&subject=a@b",
        "cannot read kafka://h:9092/t?registry=http://ann:sec/ret@r:8081 now",
    ],
)
def test_login_of_a_registry_is_hidden(text: str) -> None:
    """The login in the URL of a schema registry is hidden, however it is quoted."""
    shown = redact(text)
    assert "sec" not in shown
    assert "***@r" in shown
    assert (
        redact("kafka://h:1/t?registry=http://r:8081&subject=ab") == "kafka://h:1/t?registry=http://r:8081&subject=ab"
    )


def test_redaction_keeps_the_rest() -> None:
    """What is not secret is shown as given."""
    text = "kafka://127.0.0.1:9092/visits?startingOffsets=earliest"
    assert parse_uri(text).redacted() == redact(text) == text


@given(
    st.text(max_size=40) | st.sampled_from(sorted(FORMS)).flatmap(lambda s: st.text(max_size=30).map(f"{s}:".__add__))
)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """No text makes the parser fail in any other way."""
    try:
        assert parse_uri(text).scheme in FORMS
    except UsageProblem as refused:
        assert refused.remedy


@pytest.mark.parametrize(
    ("text", "path"), [("files:a%20b", "a b"), ("delta:/a/50%25", "/a/50%"), ("s3://b/a%20b", "s3a://b/a b")]
)
def test_paths_are_percent_decoded(text: str, path: str) -> None:
    """As everywhere in URIs; the other commands read recorded URIs in the same way."""
    assert parse_uri(text).path == path
