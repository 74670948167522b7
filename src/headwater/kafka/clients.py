"""librdkafka prints its own lines on standard error unless it is given somewhere else to put them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.core.errors import ServiceUnreachable, UsageProblem

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, ClusterMetadata


SILENT = logging.getLogger("headwater.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 4.0


def admin(bootstrap: str, settings: Mapping[str, object] | None = None) -> AdminClient:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    return AdminClient(_settings(bootstrap, settings), logger=SILENT)


def producer(bootstrap: str, settings: Mapping[str, object] | None = None) -> Producer:
    from confluent_kafka import Producer  # noqa: PLC0415

    return Producer(_settings(bootstrap, settings), logger=SILENT)


def consumer(bootstrap: str, settings: Mapping[str, object] | None = None) -> Consumer:
    from confluent_kafka import Consumer  # noqa: PLC0415

    return Consumer(_settings(bootstrap, settings), logger=SILENT)


def cluster(client: AdminClient, bootstrap: str) -> ClusterMetadata:
    """What the broker tells of itself; ``ServiceUnreachable`` within seconds when it does not answer."""
    from confluent_kafka import KafkaException  # noqa: PLC0415

    require_listener(bootstrap)
    try:
        return client.list_topics(timeout=ANSWER_SECONDS)
    except KafkaException as failure:
        raise unreachable(bootstrap, failure.args[0].str()) from None


def require_listener(bootstrap: str) -> None:
    """Tell at once that nothing listens, where librdkafka would go on trying."""
    reasons = []
    for host, port in addresses(bootstrap):
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
        except OSError as failure:
            reasons.append(failure.strerror or str(failure))
        else:
            return
    raise unreachable(bootstrap, ", ".join(dict.fromkeys(reasons)))


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """``host:port`` pairs of a comma-separated list."""
    pairs = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageProblem(
                "bad-bootstrap",
                "a broker is named by host and port",
                evidence={"found": bootstrap},
                remedy="write it like --bootstrap 127.0.0.1:9092",
            )
        pairs.append((host.strip("[]"), int(port)))
    return pairs


def unreachable(bootstrap: str, reason: str) -> ServiceUnreachable:
    return ServiceUnreachable(
        "kafka-unreachable",
        f"no Kafka broker answers at {bootstrap}",
        evidence={"reason": reason},
        remedy="headwater broker start",
    )


def _settings(bootstrap: str, more: Mapping[str, object] | None) -> dict[str, object]:
    quiet = {"log.connection.close": False, "error_cb": lambda _: None, "socket.timeout.ms": 10_000}
    return {"bootstrap.servers": bootstrap, **quiet, **(more or {})}
