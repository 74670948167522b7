"""Translation of Spark's ``kafka.*`` options to librdkafka's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker_support import login
from headwater.core.errors import UsageProblem
from headwater.jobs.endpoints import Kafka
from headwater.jobs.uris import uri_of
from headwater.kafka.options import (
    CHOSEN_BY_HEADWATER,
    JAVA_ONLY,
    PROPERTIES_VARIABLE,
    Connection,
    UnmappedOption,
    format_properties,
    librdkafka_settings,
    parse_properties,
)

SASL = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
TLS = {"kafka.security.protocol": "SSL"}
PEM = "-----BEGIN CERTIFICATE----- AAAA BBBB -----END CERTIFICATE-----"
WRAPPED_PEM = "-----BEGIN CERTIFICATE-----\nAAAA\nBBBB\n-----END CERTIFICATE-----\n"


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files that begin like a JKS store, a PKCS12 store and a PEM file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    (tmp_path / "store.p12").write_bytes(b"\x30\x82\x07\x00")
    (tmp_path / "store.pem").write_text(WRAPPED_PEM)
    return tmp_path


def test_plain_connection_has_no_security_settings() -> None:
    """Without options the connection is PLAINTEXT."""
    assert Connection("a:1,b:2").client_settings() == {"bootstrap.servers": "a:1,b:2", "security.protocol": "plaintext"}


@pytest.mark.parametrize(
    ("jaas", "user", "password"),
    [
        (login("secret"), "ann", "secret"),
        (login('a "b" \\c'), "ann", 'a "b" \\c'),
        ("x.ScramLoginModule required\n username='bob'\n password='p w';", "bob", "p w"),
        ("shaded.PlainLoginModule required username=bob password=plain.word-1;", "bob", "plain.word-1"),
        ('x.PlainLoginModule required serviceName="kafka" password="\\101\\n" username="";', "", "A\n"),
    ],
)
def test_user_and_password_come_from_the_jaas_configuration(jaas: str, user: str, password: str) -> None:
    """User name and password are read as Java reads them, whatever their order and quotes."""
    settings = librdkafka_settings({**SASL, "kafka.sasl.jaas.config": jaas})
    assert settings == {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "store.pem"},
            {"ssl.ca.location": "store.pem"},
        ),
        ({"kafka.ssl.truststore.certificates": PEM}, {"ssl.ca.pem": WRAPPED_PEM}),
        (
            {
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.location": "store.pem",
                "kafka.ssl.key.password": "p",
            },
            {"ssl.key.location": "store.pem", "ssl.certificate.location": "store.pem", "ssl.key.password": "p"},
        ),
        (
            {"kafka.ssl.keystore.location": "store.p12", "kafka.ssl.keystore.password": "p"},
            {"ssl.keystore.location": "store.p12", "ssl.keystore.password": "p"},
        ),
        (
            {"kafka.ssl.keystore.key": PEM, "kafka.ssl.keystore.certificate.chain": PEM},
            {"ssl.key.pem": WRAPPED_PEM, "ssl.certificate.pem": WRAPPED_PEM},
        ),
        (
            {"kafka.ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"kafka.ssl.endpoint.identification.algorithm": "HTTPS"},
            {"ssl.endpoint.identification.algorithm": "https"},
        ),
        ({"kafka.ssl.ca.location": "x.pem", "kafka.ssl.protocol": "TLSv1.3"}, {"ssl.ca.location": "x.pem"}),
    ],
)
def test_tls_options(options: dict[str, str], expected: dict[str, str], stores: Path) -> None:
    """Truststores and keystores as PEM, and PKCS12 keystores, have a counterpart."""
    assert librdkafka_settings({**TLS, **options}) == {"security.protocol": "ssl", **expected}


@pytest.mark.parametrize(
    ("options", "option", "reason"),
    [
        ({**TLS, "kafka.ssl.truststore.location": "store.jks"}, "ssl.truststore.location", "a JKS truststore"),
        (
            {**TLS, "kafka.ssl.truststore.type": "PKCS12", "kafka.ssl.truststore.location": "store.p12"},
            "ssl.truststore.location",
            "a PKCS12 truststore",
        ),
        ({**TLS, "kafka.ssl.keystore.location": "store.jks"}, "ssl.keystore.location", "a JKS keystore"),
        ({**TLS, "kafka.ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class", "Java class"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism", "GSSAPI"),
        ({**SASL, "kafka.sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism", "OAUTHBEARER"),
        ({**SASL, "kafka.sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism", "AWS_MSK_IAM"),
        (
            {**SASL, "kafka.sasl.login.callback.handler.class": "x.Y"},
            "sasl.login.callback.handler.class",
            "Java class",
        ),
        (SASL, "sasl.jaas.config", "not set"),
        ({**SASL, "kafka.sasl.jaas.config": "x.Krb5LoginModule required;"}, "sasl.jaas.config", "Krb5LoginModule"),
        (
            {**SASL, "kafka.sasl.jaas.config": 'x.ScramLoginModule required tokenauth="true";'},
            "sasl.jaas.config",
            "delegation token",
        ),
        (
            {**SASL, "kafka.sasl.jaas.config": 'x.PlainLoginModule required username="u";'},
            "sasl.jaas.config",
            "no username and password",
        ),
    ],
)
def test_options_without_a_counterpart(options: dict[str, str], option: str, reason: str, stores: Path) -> None:
    """A security option that librdkafka cannot follow is named instead of being ignored."""
    with pytest.raises(UnmappedOption) as refused:
        librdkafka_settings(options)
    assert refused.value.problem == f"kafka.{option} has no counterpart in the Python client"
    assert reason in refused.value.evidence["reason"]
    assert refused.value.remedy


def test_missing_store_is_named(tmp_path: Path) -> None:
    """A truststore that does not exist is reported with its path."""
    options = {**TLS, "kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(tmp_path / "ca.pem")}
    with pytest.raises(UsageProblem, match="names a file that does not exist") as refused:
        librdkafka_settings(options)
    assert refused.value.evidence == {"file": str(tmp_path / "ca.pem")}


def test_unknown_protocol() -> None:
    """A security protocol that Kafka does not have is refused with those that it has."""
    with pytest.raises(UsageProblem, match="'TLS' is not a Kafka security protocol"):
        librdkafka_settings({"kafka.security.protocol": "TLS"})


def test_other_options_are_passed_on_or_left_out() -> None:
    """Options with the same name are passed on; those of Java only, of Spark, and of Headwater's own choice are not."""
    options = {
        "kafka.client.id": "me",
        "kafka.compression.type": "lz4",
        "kafka.max.poll.records": "5000",
        "kafka.group.id": "theirs",
        "kafka.ssl.truststore.location": "unused without TLS",
        "kafka.sasl.mechanism": "GSSAPI",
        "startingOffsets": "earliest",
    }
    assert librdkafka_settings(options) == {
        "security.protocol": "plaintext",
        "client.id": "me",
        "compression.type": "lz4",
    }


def test_lists_of_options_do_not_overlap() -> None:
    """Each option has one reason for not being passed on."""
    assert not JAVA_ONLY & CHOSEN_BY_HEADWATER


@pytest.mark.parametrize(
    "name",
    ["acks", "client.dns.lookup", "client.id", "client.rack", "connections.max.idle.ms", "enable.idempotence",
     "fetch.max.bytes", "isolation.level", "linger.ms", "metadata.max.age.ms", "reconnect.backoff.ms",
     "request.timeout.ms", "retries", "retry.backoff.ms", "socket.connection.setup.timeout.ms"],
)  # fmt: skip
def test_installed_client_knows_the_options_that_are_passed_on(name: str) -> None:
    """Common options of the Java client have the same name in the installed librdkafka."""
    values = {"acks": "all", "client.dns.lookup": "use_all_dns_ips", "enable.idempotence": "true"}
    value = values.get(name, "read_committed" if name == "isolation.level" else "10000")
    Producer(Connection("127.0.0.1:1", {f"kafka.{name}": value}).client_settings())


def test_redacted_option_is_not_used() -> None:
    """A recorded source has no password; using it names the missing option and how to provide it."""
    source = Kafka("visits", servers="b:9093", options={**SASL, "kafka.sasl.jaas.config": login("secret")})
    with pytest.raises(UsageProblem) as refused:
        Connection.from_uri(uri_of(source)).client_settings()
    assert refused.value.code == "kafka-option-redacted"
    assert "kafka.sasl.jaas.config" in refused.value.problem
    assert PROPERTIES_VARIABLE in (refused.value.remedy or "")


@pytest.mark.parametrize("name", ["kafka.ssl.keystore.key", "kafka.ssl.key.pem", "kafka.ssl.keystore.password"])
def test_private_keys_are_not_recorded(name: str) -> None:
    """A private key in an option is redacted like a password."""
    assert "secret" not in uri_of(Kafka("visits", options={name: "secret"}))


@pytest.fixture
def properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client.properties file that HEADWATER_KAFKA_PROPERTIES names."""
    file = tmp_path / "client.properties"
    settings = {
        "bootstrap.servers": "b:9093, c:9093",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login('pass "word" \\'),
        "group.id": "of another program",
    }
    file.write_text(format_properties(settings))
    monkeypatch.setenv(PROPERTIES_VARIABLE, str(file))
    return file


def test_properties_file_completes_a_recorded_source(properties: Path) -> None:
    """What was redacted, and what the URI leaves out, comes from the file."""
    recorded = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.jaas.config": "***", "kafka.client.id": "me"}
    assert Connection("c:9093", recorded).client_settings() == {
        "bootstrap.servers": "c:9093",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": 'pass "word" \\',
        "client.id": "me",
    }
    options = Connection("b:9093").spark_options()
    assert options["kafka.sasl.mechanism"] == "PLAIN"
    assert "kafka.group.id" not in options


def test_uri_overrides_the_properties_file(properties: Path) -> None:
    """An option of the URI wins over the same option of the file."""
    connection = Connection("b:9093", {"kafka.security.protocol": "PLAINTEXT"})
    assert connection.client_settings() == {"bootstrap.servers": "b:9093", "security.protocol": "plaintext"}


@pytest.mark.parametrize("servers", ["d:9093", "b:9093,d:9093", "b:9092"])
def test_properties_file_applies_to_the_listed_brokers_only(properties: Path, servers: str) -> None:
    """A password is never sent to a broker that the file does not list."""
    assert Connection(servers).client_settings() == {"bootstrap.servers": servers, "security.protocol": "plaintext"}


def test_properties_file_without_servers_is_refused(properties: Path) -> None:
    """The file has to list the brokers that its password is for."""
    properties.write_text("security.protocol=SSL\n")
    with pytest.raises(UsageProblem, match=r"does not list bootstrap\.servers"):
        Connection("b:9093").client_settings()
    properties.unlink()
    with pytest.raises(UsageProblem, match="cannot be read"):
        Connection("b:9093").client_settings()


def test_properties_are_read_as_java_reads_them() -> None:
    """Comments, separators, continued lines and escapes follow Java's rules."""
    text = "# note\n! note\na=1\nb : two words \nc three\n  d.e = f=g:h\nlong=one, \\\n   two\nu=\\u00e9\\t\\\\\\=\n\nempty\n"
    assert parse_properties(text) == {
        "a": "1",
        "b": "two words ",
        "c": "three",
        "d.e": "f=g:h",
        "long": "one, two",
        "u": "é\t\\=",
        "empty": "",
    }


@pytest.mark.parametrize("value", ["", " leading", "a\\b", 'quote " and = : # !', "é\n\t", "ends with \\"])
def test_properties_round_trip(value: str) -> None:
    """Any value that is written is read back."""
    assert parse_properties(format_properties({"first": value, "second": "x"})) == {"first": value, "second": "x"}
