"""Checks of the services that a job needs, before Spark starts: an error takes seconds, not minutes."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.jars.versions import require_table_format
from headwater.jobs.endpoints import Delta, Files, Iceberg, Kafka, Postgres, Sink, Source
from headwater.jobs.job import Job
from headwater.jobs.kafka_rules import check_kafka_sink, check_kafka_source
from headwater.kafka.options import Connection, UnmappedOption
from headwater.kafka.topics import require_topics, require_writable_topic
from headwater.spark import postgres, postgres_reading
from headwater.spark.avro_schemas import check_sink_registry
from headwater.spark.decoding import with_resolved_schema
from headwater.spark.delta import is_table
from headwater.spark.dropped import DeadLetterSink, dead_letter_sink, refuse_feedback_loop
from headwater.spark.session import active_session
from headwater.spark.table_formats import CATALOGS, unknown_catalog

MASTER_SECONDS = 5.0


def check_services(job: Job, master: str = "local[*]", *, warn: Callable[[str], None] = lambda _: None) -> None:
    """Raise if a service that the job needs cannot be reached. ``warn`` receives what could not be checked.

    A socket is not checked: its server may accept a single connection only.
    """
    _check_master(master)
    check_topics(job, warn=warn)
    for source in job.sources.values():
        match source:
            case Files():
                _check_folder(source)
            case Delta():
                _check_delta_table(source)
    for table in (*job.sources.values(), *(static.table for static in job.statics.values()), job.writes):
        _check_format(table, job)
    for name, static in job.statics.items():
        match static.table:
            case Files():
                _check_table_files(name, static.table)
            case Postgres():
                postgres_reading.require_table(static.table)
            case Delta():
                _check_delta_table(static.table)
    match job.writes:
        case Kafka():
            _check_sink_topic(job.writes, warn)
        case Postgres():
            postgres.connect(job.writes).close()
    if job.dead_letters is not None:
        check_dead_letters(job, job.dead_letters, warn=warn)


def check_dead_letters(job: Job, uri: str, *, warn: Callable[[str], None] = lambda _: None) -> DeadLetterSink:
    """Return the sink for a job's dropped records; raise if it cannot be written to."""
    sink = dead_letter_sink(uri)
    refuse_feedback_loop(job, sink)
    if isinstance(sink, Kafka):
        _check_sink_topic(sink, warn)
    elif isinstance(sink, Delta | Iceberg):
        _check_format(sink, job)
    return sink


def _check_master(master: str) -> None:
    """Raise if no Spark master answers; Spark itself would try for a minute."""
    addresses = re.findall(r"([^:,/]+):(\d+)", master.removeprefix("spark://")) if master.startswith("spark://") else []
    for host, port in addresses:
        try:
            socket.create_connection((host, int(port)), timeout=MASTER_SECONDS).close()
        except OSError as error:
            problem = error
        else:
            return
    if addresses:
        raise ServiceUnreachable(
            "no-master",
            f"cannot connect to the Spark master at {master}",
            evidence={"reason": problem.strerror or problem},
            remedy="start the master, or omit --master to run on this machine",
        )


def check_topics(job: Job, *, warn: Callable[[str], None] = lambda _: None) -> None:
    """Raise if a topic that the job reads does not exist or cannot be reached."""
    for source in job.sources.values():
        if isinstance(source, Kafka):
            _check_source_topics(source, warn)


def _check_source_topics(source: Kafka, warn: Callable[[str], None]) -> None:
    check_kafka_source(source)
    with_resolved_schema(source)
    topics = [] if "subscribePattern" in source.options else topic_names(source)
    try:
        require_topics(Connection(source.servers, source.options), topics)
    except UnmappedOption as unmapped:
        warn(_unchecked(source, unmapped))


def _check_sink_topic(sink: Kafka, warn: Callable[[str], None]) -> None:
    check_kafka_sink(sink)
    if sink.format == "avro":
        check_sink_registry(sink)
    try:
        require_writable_topic(Connection(sink.servers, sink.options), sink.topic)
    except UnmappedOption as unmapped:
        warn(_unchecked(sink, unmapped))


def _unchecked(endpoint: Kafka, unmapped: UnmappedOption) -> str:
    return f"warning: cannot check the broker at {endpoint.servers}: {unmapped.problem} ({unmapped.evidence['reason']})"


def topic_names(source: Kafka) -> list[str]:
    """Return the topics that a source names; it must not choose them by a pattern."""
    if "assign" in source.options:
        return re.findall(r'"([^"]+)"\s*:\s*\[', source.options["assign"])
    return source.options.get("subscribe", source.topic).split(",")


def _check_folder(source: Files) -> None:
    if _is_missing(source):
        raise JobRefused(
            "no-folder",
            f"the source folder {source.path} does not exist",
            remedy=f"mkdir -p {source.path}   (files may arrive later)",
        )


def _check_delta_table(source: Delta) -> None:
    if not is_table(source):
        raise ServiceUnreachable(
            "no-table",
            f"there is no Delta table at {source.path}",
            remedy=f"run the job that writes it first: headwater run JOB --sink delta:{source.path}",
        )


def _check_format(table: Source | Sink, job: Job) -> None:
    """Raise if the table's format has no release for this Spark, or if nothing configures its catalog."""
    require_table_format(table.kind)
    if isinstance(table, Iceberg) and not table.catalog and CATALOGS + table.catalog_name not in job.conf:
        session = active_session()
        if session is None or session.conf.get(CATALOGS + table.catalog_name, None) is None:
            raise unknown_catalog(table)


def _check_table_files(name: str, table: Files) -> None:
    if _is_missing(table):
        raise JobRefused(
            "no-folder",
            f"the files of the static table {name} do not exist",
            evidence={"path": table.path},
            remedy=f"write the table first, or read another one: --source {name}=URI",
        )


def _is_missing(files: Files) -> bool:
    path = files.path.removeprefix("file://")
    return "://" not in path and not re.search(r"[*?\[{]", path) and not Path(path).exists()
