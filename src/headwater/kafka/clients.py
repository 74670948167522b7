"""Clients of librdkafka, and the errors for a broker that cannot be reached or that refuses a login."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.core.errors import HeadwaterError, ServiceUnreachable, UsageProblem
from headwater.core.extras import naming_extras
from headwater.kafka.options import Connection, UnmappedOption

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import ClusterMetadata

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 10.0
LOST_SECONDS = 4.0
RETRY_SECONDS = 0.5
REQUEST_SECONDS = 30.0

# librdkafka prints on standard error unless it is given a logger.
QUIET = logging.getLogger("headwater.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


def producer(connection: Connection, settings: Mapping[str, object] | None = None) -> Producer:
    """Return a producer. ``settings`` are librdkafka's; options of the connection override them."""
    with naming_extras():
        from confluent_kafka import Producer  # noqa: PLC0415  only commands that use Kafka load the client

    return _create_client(Producer, {**(settings or {}), **connection.client_settings()}, QUIET)


def consumer(connection: Connection, settings: Mapping[str, object]) -> Consumer:
    """Return a consumer. ``settings`` are librdkafka's; options of the connection override them."""
    with naming_extras():
        from confluent_kafka import Consumer  # noqa: PLC0415

    return _create_client(Consumer, {**settings, **connection.client_settings()}, QUIET)


class Cluster:
    """A connection for requests about topics and offsets. Errors name the cause that librdkafka only logs."""

    def __init__(self, connection: Connection) -> None:
        with naming_extras():
            from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        self.connection = connection
        self._errors: deque[KafkaError] = deque(maxlen=10)
        self._lost = _LostConnections()
        settings = connection.client_settings()
        require_listener(connection)
        logger = logging.Logger("headwater.librdkafka")
        logger.addHandler(self._lost)
        self.client = _create_client(AdminClient, settings, logger, self._errors.append)

    def metadata(self) -> ClusterMetadata:
        """Return brokers and topics; raise within seconds if no broker answers or the login fails."""
        from confluent_kafka import KafkaException  # noqa: PLC0415

        began = time.monotonic()
        while True:
            try:
                return self.client.list_topics(timeout=RETRY_SECONDS)
            except KafkaException as failure:
                self.client.poll(0)
                # librdkafka keeps trying after a refused login, and reports a timeout.
                decisive = [error for error in self._errors if error.name() in ("_AUTHENTICATION", "_SSL")]
                if decisive:
                    raise connection_error(self.connection, decisive[-1]) from None
                reason = self._lost.reason or failure.args[0].str()
                if "PLAINTEXT broker listener" in reason:
                    raise _handshake_failed(self.connection, reason) from None
                # A busy broker answers late. One that closes the connection will not answer.
                if time.monotonic() - began > (LOST_SECONDS if self._lost.reason else ANSWER_SECONDS):
                    raise unreachable(self.connection, reason) from None

    def result(self, future: Future[Any], problem: str, *, ignore: str | None = None) -> Any:
        """Return the broker's reply to one request; raise its refusal as an error. ``ignore`` names an error to accept."""
        from confluent_kafka import KafkaException  # noqa: PLC0415

        self.client.poll(0)  # otherwise errors and log messages pile up in a client that lives long
        try:
            return future.result(timeout=REQUEST_SECONDS)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.name() == ignore:
                return None
            raise refused(self.connection, problem, failure) from None


def refused(connection: Connection, problem: str, failure: KafkaException) -> ServiceUnreachable:
    """Return the error for a request that the broker refuses."""
    reason = failure.args[0].str()
    return ServiceUnreachable("kafka-refused", problem, evidence={"broker": connection.servers, "reason": reason})


class _LostConnections(logging.Handler):
    """Keeps the reason of the last lost connection, which librdkafka reports to its logger only."""

    def __init__(self) -> None:
        super().__init__()
        self.reason: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message.startswith("FAIL "):
            self.reason = _plain_reason(message)


def _create_client(
    kind: Any, settings: Mapping[str, object], logger: logging.Logger, on_error: Any = lambda _: None
) -> Any:
    from confluent_kafka import KafkaException  # noqa: PLC0415

    try:
        return kind({"socket.timeout.ms": 10_000, "error_cb": on_error, **settings}, logger=logger)
    except KafkaException as refused:
        reason = refused.args[0].str().removeprefix("Failed to create admin client: ")
        if unknown := re.fullmatch(r'No such configuration property: "(.+)"', reason):
            raise UnmappedOption(unknown[1], "librdkafka has no such option", "check the spelling") from None
        raise UsageProblem(
            "bad-kafka-option",
            "the Python client does not accept an option of the Kafka connection",
            evidence={"reason": reason},
            remedy="check the files and passwords that the kafka.ssl.* options name",
        ) from None


def require_listener(connection: Connection) -> None:
    """Raise at once if no server accepts connections; librdkafka would keep trying."""
    reasons = []
    for host, port in addresses(connection.servers):
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
        except OSError as failure:
            reasons.append((failure.strerror or str(failure)).lower())
        else:
            return
    raise unreachable(connection, ", ".join(dict.fromkeys(reasons)))


def addresses(servers: str) -> list[tuple[str, int]]:
    """Return host and port of each server in a comma-separated list."""
    pairs = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageProblem(
                "bad-bootstrap",
                "the address of a Kafka broker is not of the form HOST:PORT",
                evidence={"found": servers},
                remedy="write it like --bootstrap 127.0.0.1:9092",
            )
        pairs.append((host.strip("[]"), int(port)))
    return pairs


def connection_error(connection: Connection, error: KafkaError) -> HeadwaterError:
    """Return the error for a connection that librdkafka could not establish or has lost."""
    reason = _plain_reason(error.str())
    match error.name():
        case "_AUTHENTICATION":
            return _login_failed(connection, reason)
        case "_SSL":
            return _handshake_failed(connection, reason)
        case _:
            return unreachable(connection, reason)


def unreachable(connection: Connection, reason: str) -> ServiceUnreachable:
    """Return the error for a broker that does not answer."""
    remedy = "headwater broker start   (or check the address)"
    if "closed by peer" in reason:
        remedy = "check kafka.security.protocol: the broker may expect TLS or a login, or neither"
    return ServiceUnreachable(
        "kafka-unreachable",
        f"cannot connect to Kafka at {connection.servers}: {reason}",
        evidence={"security.protocol": connection.protocol},
        remedy=remedy,
    )


def _login_failed(connection: Connection, reason: str) -> ServiceUnreachable:
    settings = connection.client_settings()
    return ServiceUnreachable(
        "kafka-login-failed",
        f"cannot log in to Kafka at {connection.servers}: {reason}",
        evidence={
            "user": settings.get("sasl.username", "none"),
            "sasl.mechanism": settings.get("sasl.mechanism", "none"),
        },
        remedy="check user and password in kafka.sasl.jaas.config, and kafka.sasl.mechanism",
    )


def _handshake_failed(connection: Connection, reason: str) -> ServiceUnreachable:
    trusted = connection.client_settings().get("ssl.ca.location", "the certificate authorities of this machine")
    remedy = "kafka.ssl.truststore.type=PEM and kafka.ssl.truststore.location=CA.pem, with the CA of the broker"
    if "PLAINTEXT" in reason:
        remedy = "kafka.security.protocol=PLAINTEXT, or SASL_PLAINTEXT with a login"
    return ServiceUnreachable(
        "kafka-tls-failed",
        f"the TLS handshake with Kafka at {connection.servers} failed: {reason}",
        evidence={"security.protocol": connection.protocol, "trusted": trusted},
        remedy=remedy,
    )


def _plain_reason(text: str) -> str:
    """Return librdkafka's message without addresses, durations, numbers of OpenSSL errors and its own option names."""
    reason = re.sub(r"^(?:FAIL \[[^\]]*\] \[[^\]]*\]: )?(?:\S+/\S+: )?", "", text)
    reason = re.sub(r"(: receive \d+ after POLL\w+)?\s*\(after \d+ms in state \w+.*$", "", reason)
    reason = re.sub(r"error:[0-9A-F]+:[^:]*::", "", reason)
    reason = re.sub(
        r"^((SASL authentication error|Authentication failed|SSL handshake failed|Disconnected): )+", "", reason
    )
    return reason.partition(", verify that")[0]
