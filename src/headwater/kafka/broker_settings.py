"""What the broker is told: one node that is broker and controller in one, on loopback only."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

HOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_DATA = Path(".headwater/kafka")
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Starts in half the time without the optimising compiler, and leaves the cores to Spark.
JVM_OPTIONS = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
)


def new_cluster_id() -> str:
    """A random id in Kafka's own spelling."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def server_properties(*, port: int, controller_port: int) -> str:
    """The text of ``server.properties``. Paths in it are relative to the data folder, in which the broker runs."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": "topics",
        "num.partitions": "1",
        "auto.create.topics.enable": "true",
        # A stream can only be rewound to records that the broker still has.
        "log.retention.ms": "-1",
        "log.retention.bytes": "-1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
