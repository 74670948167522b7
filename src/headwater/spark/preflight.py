"""Services that a job needs, asked before it starts: an answer within seconds instead of a stack trace in a minute."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import Any

from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.jobs.endpoints import Files, Kafka, Postgres
from headwater.jobs.job import Job
from headwater.kafka.clients import SILENT
from headwater.spark import postgres
from headwater.spark.dropped import DeadLetterSink, dead_letter_sink, refuse_circle

PATIENCE_SECONDS = 5.0


def check_services(job: Job, master: str = "local[*]") -> None:
    """Ask all that the job will need. A socket is not asked: whoever serves it may take one caller only."""
    _check_master(master)
    match job.reads:
        case Kafka():
            _check_topics_to_read(job.reads)
        case Files():
            _check_folder(job.reads)
    match job.writes:
        case Kafka():
            _check_topic_to_write(job.writes)
        case Postgres():
            postgres.connect(job.writes).close()
    if job.dead_letters is not None:
        check_letters(job, job.dead_letters)


def check_letters(job: Job, uri: str) -> DeadLetterSink:
    """Where dropped records of a job are to go, if they can."""
    sink = dead_letter_sink(uri)
    refuse_circle(job, sink)
    if isinstance(sink, Kafka):
        _check_topic_to_write(sink)
    return sink


def _check_master(master: str) -> None:
    """Spark tries an absent master for a minute."""
    addresses = re.findall(r"([^:,/]+):(\d+)", master.removeprefix("spark://")) if master.startswith("spark://") else []
    for host, port in addresses:
        try:
            socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS).close()
        except OSError as error:
            problem = error
        else:
            return
    if addresses:
        raise ServiceUnreachable(
            "no-master",
            f"no Spark master answers at {master}",
            evidence={"reason": problem.strerror or problem},
            remedy="start one, or run on this machine: leave --master out",
        )


def _check_topics_to_read(source: Kafka) -> None:
    known = _topics(_client_settings(source), source.servers)
    wanted = [] if "subscribePattern" in source.options else _topic_names(source)
    missing = [topic for topic in wanted if topic not in known]
    if missing:
        raise ServiceUnreachable(
            "no-topic",
            f"there is no topic {', '.join(missing)} at {source.servers}",
            evidence={"topics there": ", ".join(sorted(known)) or "none"},
            remedy=f"headwater topics create {missing[0]} --bootstrap {source.servers}",
        )


def _topic_names(source: Kafka) -> list[str]:
    if "assign" in source.options:
        return re.findall(r'"([^"]+)"\s*:\s*\[', source.options["assign"])
    return source.options.get("subscribe", source.topic).split(",")


def _check_topic_to_write(sink: Kafka) -> None:
    """Asks as a producer does, so that a broker which makes topics by itself makes this one."""
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415  only Kafka jobs pay for it

    known = _topics(_client_settings(sink), sink.servers)
    producer = Producer({**_client_settings(sink), "allow.auto.create.topics": True}, logger=SILENT)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sink.topic not in known and time.monotonic() < deadline:
        try:
            answer = producer.list_topics(sink.topic, timeout=PATIENCE_SECONDS).topics[sink.topic]
        except KafkaException:
            continue
        if answer.error is None:
            return
        time.sleep(0.1)
    if sink.topic not in known:
        raise ServiceUnreachable(
            "no-topic",
            f"there is no topic {sink.topic} at {sink.servers}, and the broker does not make it by itself",
            evidence={"topics there": ", ".join(sorted(known)) or "none"},
            remedy=f"headwater topics create {sink.topic} --bootstrap {sink.servers}",
        )


def _topics(settings: dict[str, Any], servers: str) -> set[str]:
    from confluent_kafka import KafkaException  # noqa: PLC0415
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    try:
        return set(AdminClient(settings, logger=SILENT).list_topics(timeout=PATIENCE_SECONDS).topics)
    except KafkaException as error:
        raise ServiceUnreachable(
            "kafka-unreachable",
            f"no Kafka broker answers at {servers}",
            evidence={"Kafka says": error.args[0].str()},
            remedy="headwater broker start   (or name another: kafka://HOST:PORT/TOPIC)",
        ) from error


def _client_settings(endpoint: Kafka) -> dict[str, Any]:
    """Spark's ``kafka.*`` options that librdkafka understands under the same name."""
    security = {
        name.removeprefix("kafka."): value
        for name, value in endpoint.options.items()
        if name in {"kafka.security.protocol", "kafka.sasl.mechanism", "kafka.ssl.ca.location"}
    }
    login = endpoint.options.get("kafka.sasl.jaas.config", "")
    if found := re.search(r'username="([^"]*)"\s+password="([^"]*)"', login):
        security |= {"sasl.username": found[1], "sasl.password": found[2]}
    return {"bootstrap.servers": endpoint.servers, "socket.connection.setup.timeout.ms": 4000, **security}


def _check_folder(source: Files) -> None:
    path = source.path.removeprefix("file://")
    if "://" in path or re.search(r"[*?\[{]", path) or Path(path).exists():
        return
    raise JobRefused(
        "no-folder",
        f"there is no folder {path} to read from",
        remedy=f"mkdir -p {path}   (files may land in it later)",
    )
