"""Spark's ``kafka.*`` options, and their counterparts in librdkafka, the library behind the Python client.

Spark passes these options to Kafka's Java client. Headwater's own requests about topics and offsets go through
librdkafka, which spells TLS and SASL differently. This module is the only place that translates between the two. An
option that decides how a connection is secured and that has no counterpart raises ``UnmappedOption``: a client that
ignored it would connect in another way than Spark does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.core.errors import UsageProblem
from headwater.core.uris import Uri, parse_uri

PREFIX = "kafka."
PROPERTIES_VARIABLE = "HEADWATER_KAFKA_PROPERTIES"
REDACTED = "***"
SECURITY_OPTION = re.compile(r"(security|ssl|sasl)\.")

# Options of the Java client that librdkafka does not have, or has with other values. None of them decides which broker
# answers or who logs in.
JAVA_ONLY = frozenset(
    """
    buffer.memory compression.gzip.level compression.lz4.level compression.zstd.level config.providers
    default.api.timeout.ms exclude.internal.topics fetch.max.wait.ms interceptor.classes key.deserializer key.serializer
    max.block.ms max.poll.records max.request.size metadata.max.idle.ms metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms security.providers send.buffer.bytes
    socket.connection.setup.timeout.max.ms ssl.cipher.suites ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol
    ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm value.deserializer value.serializer
    """.split()  # noqa: SIM905  a list would take a line for each name
)
# Headwater never joins a consumer group and never writes in transactions, so these are its own to choose.
CHOSEN_BY_HEADWATER = frozenset(
    """
    auto.offset.reset bootstrap.servers enable.auto.commit group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms session.timeout.ms transactional.id
    """.split()  # noqa: SIM905  a list would take a line for each name
)
# Translated by ``_tls_settings`` and ``_sasl_settings``.
TRANSLATED = frozenset(
    """
    sasl.jaas.config sasl.mechanism security.protocol ssl.endpoint.identification.algorithm ssl.key.password
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """.split()  # noqa: SIM905  a list would take a line for each name
)
CUSTOM_LOGIN = ("sasl.login.class", "sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class UnmappedOption(UsageProblem):
    """An option of the Java client without a counterpart in librdkafka."""

    def __init__(self, option: str, reason: str, remedy: str = "query this broker with Kafka's own tools") -> None:
        super().__init__(
            "bad-kafka-option",
            f"{PREFIX}{option} has no counterpart in the Python client",
            evidence={"reason": reason},
            remedy=remedy,
        )


@dataclass(frozen=True)
class Connection:
    """A Kafka cluster: its bootstrap servers, and the options of a Spark source or sink that reads or writes there.

    Options without the prefix ``kafka.`` are Spark's own and are ignored here.
    """

    servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_uri(cls, uri: str | Uri) -> Connection:
        """Return the connection of a ``kafka://`` URI."""
        parsed = parse_uri(uri) if isinstance(uri, str) else uri
        return cls(parsed.address, parsed.options)

    @property
    def protocol(self) -> str:
        """Kafka's security protocol, for messages."""
        return self.spark_options().get(f"{PREFIX}security.protocol", PROTOCOLS[0]).upper()

    def spark_options(self) -> dict[str, str]:
        """Return the ``kafka.*`` options, with what the file named by ``HEADWATER_KAFKA_PROPERTIES`` adds to them.

        The file applies only to the servers that it lists, so that its password goes to no other broker. Raises
        ``UsageProblem`` if an option was redacted when it was recorded, and the file does not have it either.
        """
        given = {name: value for name, value in self.options.items() if name.startswith(PREFIX)}
        completed = _options_from_file(self.servers) | {
            name: value for name, value in given.items() if value != REDACTED
        }
        redacted = sorted(name for name in given if name not in completed)
        if redacted:
            raise UsageProblem(
                "kafka-option-redacted",
                f"the value of {redacted[0]} was redacted when the source was recorded",
                evidence={"broker": self.servers},
                remedy=f"set {PROPERTIES_VARIABLE} to a client.properties file for this broker, or name the source "
                "with this option: --source",
            )
        return completed

    def client_settings(self) -> dict[str, object]:
        """Return librdkafka's settings; raise ``UnmappedOption`` for an option that cannot be translated."""
        return {"bootstrap.servers": self.servers, **librdkafka_settings(self.spark_options())}


def librdkafka_settings(options: Mapping[str, str]) -> dict[str, object]:
    """Translate ``kafka.*`` options. Other names are passed on as they are: librdkafka refuses what it does not know."""
    given = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    protocol = given.get("security.protocol", PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise UsageProblem(
            "bad-kafka-option",
            f"{protocol!r} is not a Kafka security protocol",
            evidence={"known": ", ".join(PROTOCOLS)},
            remedy=f"{PREFIX}security.protocol=SASL_SSL",
        )
    uses_tls, uses_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    unused = [prefix for prefix, used in (("ssl.", uses_tls), ("sasl.", uses_sasl)) if not used]
    settings: dict[str, object] = {
        name: value
        for name, value in given.items()
        if name not in JAVA_ONLY | CHOSEN_BY_HEADWATER | TRANSLATED and not name.startswith(tuple(unused))
    }
    settings["security.protocol"] = protocol.lower()
    if uses_tls:
        settings |= _tls_settings(given)
    if uses_sasl:
        settings |= _sasl_settings(given)
    return settings


def _tls_settings(given: Mapping[str, str]) -> dict[str, object]:
    if "ssl.engine.factory.class" in given:
        raise UnmappedOption("ssl.engine.factory.class", "it is a Java class")
    settings: dict[str, object] = {}
    if "ssl.truststore.certificates" in given:
        settings["ssl.ca.pem"] = _wrapped_pem(given["ssl.truststore.certificates"])
    elif location := given.get("ssl.truststore.location"):
        kind = _store_type(given.get("ssl.truststore.type"), location)
        if kind != "PEM":
            raise UnmappedOption(
                "ssl.truststore.location", f"a {kind} truststore can only be read by Java", _to_pem(location)
            )
        settings["ssl.ca.location"] = _existing("ssl.truststore.location", location)
    if "ssl.keystore.key" in given:
        settings["ssl.key.pem"] = _wrapped_pem(given["ssl.keystore.key"])
        settings["ssl.certificate.pem"] = _wrapped_pem(given.get("ssl.keystore.certificate.chain", ""))
    elif location := given.get("ssl.keystore.location"):
        match _store_type(given.get("ssl.keystore.type"), _existing("ssl.keystore.location", location)):
            case "PEM":
                settings |= {"ssl.key.location": location, "ssl.certificate.location": location}
            case "PKCS12":
                settings["ssl.keystore.location"] = location
                settings["ssl.keystore.password"] = given.get("ssl.keystore.password", "")
            case kind:
                raise UnmappedOption(
                    "ssl.keystore.location", f"a {kind} keystore can only be read by Java", _to_pkcs12(location)
                )
    if "ssl.key.password" in given:
        settings["ssl.key.password"] = given["ssl.key.password"]
    if (algorithm := given.get("ssl.endpoint.identification.algorithm")) is not None:
        settings["ssl.endpoint.identification.algorithm"] = algorithm.strip().lower() or "none"
    return settings


def _existing(option: str, location: str) -> str:
    if not Path(location).is_file():
        raise UsageProblem(
            "bad-kafka-option",
            f"{PREFIX}{option} names a file that does not exist",
            evidence={"file": location},
            remedy=f"{PREFIX}{option}=/path/to/an/existing/file",
        )
    return location


def _store_type(declared: str | None, location: str) -> str:
    """Return PEM, PKCS12 or JKS. Java's default, JKS, also opens PKCS12 files, so the file's first bytes decide."""
    kind = (declared or "JKS").upper()
    if kind not in {"JKS", "PKCS12"}:
        return kind
    try:
        with Path(location).open("rb") as store:
            return {b"\xfe": "JKS", b"\x30": "PKCS12"}.get(store.read(1), kind)
    except OSError:
        return kind


def _to_pem(truststore: str) -> str:
    pem = Path(truststore).with_suffix(".pem")
    return (
        f"keytool -list -rfc -keystore {truststore} > {pem}, then "
        f"{PREFIX}ssl.truststore.type=PEM and {PREFIX}ssl.truststore.location={pem}"
    )


def _to_pkcs12(keystore: str) -> str:
    converted = Path(keystore).with_suffix(".p12")
    return (
        f"keytool -importkeystore -srckeystore {keystore} -destkeystore {converted} -deststoretype PKCS12, then "
        f"{PREFIX}ssl.keystore.type=PKCS12 and {PREFIX}ssl.keystore.location={converted}"
    )


def _wrapped_pem(text: str) -> str:
    """Return PEM blocks with their line breaks. The Java client also accepts them with spaces, as one line."""
    blocks = re.findall(r"(-----BEGIN [^-]+-----)\s*([^-]+?)\s*(-----END [^-]+-----)", text)
    return "".join("\n".join([begin, *content.split(), end, ""]) for begin, content, end in blocks) or text


def _sasl_settings(given: Mapping[str, str]) -> dict[str, object]:
    for name in CUSTOM_LOGIN:
        if name in given:
            raise UnmappedOption(name, "it is a Java class")
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in PASSWORD_MECHANISMS:
        kerberos = " (Kerberos), which is also the default" if mechanism == "GSSAPI" else ""
        raise UnmappedOption(
            "sasl.mechanism",
            f"the mechanism is {mechanism}{kerberos}; the Python client supports {', '.join(PASSWORD_MECHANISMS)}",
        )
    if "sasl.username" in given:
        return {"sasl.mechanism": mechanism}
    user, password = parse_jaas(given.get("sasl.jaas.config", ""))
    return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}


def parse_jaas(jaas: str) -> tuple[str, str]:
    """Return user name and password of a ``sasl.jaas.config``; raise ``UnmappedOption`` for other kinds of login."""
    tokens = [_unquoted(token) for token in re.findall(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[^\s=;"\']+', jaas)]
    if not tokens:
        raise UnmappedOption("sasl.jaas.config", "it is not set, and a JAAS file of the JVM can only be read by Java")
    module = tokens[0].rpartition(".")[2]
    values = dict(zip(tokens[2::2], tokens[3::2], strict=False))
    if module not in {"PlainLoginModule", "ScramLoginModule"}:
        raise UnmappedOption("sasl.jaas.config", f"the login module is {module}")
    if values.get("tokenauth", "").lower() == "true":
        raise UnmappedOption("sasl.jaas.config", "it logs in with a delegation token")
    if "username" not in values or "password" not in values:
        raise UnmappedOption("sasl.jaas.config", f"{module} has no username and password")
    return values["username"], values["password"]


def _unquoted(token: str) -> str:
    """Return a JAAS token as Java's ``StreamTokenizer`` reads it."""
    if token[0] not in "\"'":
        return token
    controls = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

    def escaped(found: re.Match[str]) -> str:
        return chr(int(found[1], 8)) if found[1].isdigit() and found[1] < "8" else controls.get(found[1], found[1])

    return re.sub(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", escaped, token[1:-1], flags=re.DOTALL)


def _options_from_file(servers: str) -> dict[str, str]:
    """Return the security options of the file named by ``HEADWATER_KAFKA_PROPERTIES``, if it lists these servers."""
    named = os.environ.get(PROPERTIES_VARIABLE)
    if not named:
        return {}
    try:
        properties = parse_properties(Path(named).read_text("latin-1"))
    except OSError as failure:
        raise _bad_file(named, "cannot be read", failure.strerror or str(failure)) from None
    if "bootstrap.servers" not in properties:
        raise _bad_file(
            named, "does not list bootstrap.servers", "its password is sent only to the brokers that it lists"
        )
    listed = {server.strip() for server in properties["bootstrap.servers"].split(",")}
    if not {server.strip() for server in servers.split(",")} <= listed:
        return {}
    return {f"{PREFIX}{name}": value for name, value in properties.items() if SECURITY_OPTION.match(name)}


def _bad_file(named: str, problem: str, reason: str) -> UsageProblem:
    return UsageProblem(
        "bad-kafka-properties",
        f"the file named by {PROPERTIES_VARIABLE} {problem}",
        evidence={"file": named, "reason": reason},
        remedy=f"unset {PROPERTIES_VARIABLE}, or name a client.properties file with a line bootstrap.servers=HOST:PORT",
    )


def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a Java properties file."""
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\(?:\r\n|\r|\n)[ \t\f]*", r"\1", text)
    found: dict[str, str] = {}
    for line in re.split(r"[\r\n]+", joined):
        stripped = line.lstrip(" \t\f")
        if not stripped or stripped[0] in "#!":
            continue
        split = re.fullmatch(r"((?:\\.|[^\\=: \t\f])+)[ \t\f]*[=:]?[ \t\f]*(.*)", stripped, flags=re.DOTALL)
        if split:
            found[_unescaped(split[1])] = _unescaped(split[2])
    return found


def format_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _unescaped(text: str) -> str:
    controls = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else controls.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", character, text)


def _escaped(value: str) -> str:
    encoded = value.replace("\\", "\\\\")
    encoded = "".join(one if " " <= one <= "~" else f"\\u{ord(one):04x}" for one in encoded)
    return f"\\{encoded}" if encoded.startswith(" ") else encoded


def plain_login(user: str, password: str) -> str:
    """Return the ``sasl.jaas.config`` that logs in with a user name and a password."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f"{module} required username={jaas_quoted(user)} password={jaas_quoted(password)};"


def jaas_quoted(text: str) -> str:
    """Return a text as a quoted value of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
