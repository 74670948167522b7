"""Check the sources of a stream: what its checkpoint needs, compared with what brokers and folders hold."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.log_entries import text_of_source
from headwater.checkpoint.record import FILES, folder_of, uri_kind
from headwater.checkpoint.source_names import SourceIdentity, plain_path
from headwater.checkpoint.source_offsets import kafka_partitions, kind_of, log_offset, offset_value
from headwater.core.errors import CheckpointUnreadable, HeadwaterError, UsageProblem
from headwater.core.finding import Finding
from headwater.core.uris import parse_uri
from headwater.guards import file_sources, kafka_sources
from headwater.guards.file_sources import FileNeeds
from headwater.guards.kafka_sources import KafkaNeeds, RecordTimes
from headwater.guards.report import SourceReport, combine
from headwater.guards.topic_record import current_ids, read_topics, recreated_since
from headwater.kafka.clients import Cluster
from headwater.kafka.offsets import Partition
from headwater.kafka.options import Connection
from headwater.kafka.retention import timestamps_at
from headwater.kafka.topic_facts import topic_facts

SPEED_WINDOW_MS = 3_600_000
Connections = Mapping[str, Connection]
"""Connections to Kafka by the label of the source; that of ``""`` applies to all others."""


def check_sources(
    files: FileTree, connections: Connections | None = None, given: Sequence[str] = (), *, now_ms: int | None = None
) -> SourceReport:
    """Check every source of a checkpoint's query. Problems become findings; nothing is raised for them.

    ``connections`` are those that the caller knows better than the record, which has no passwords. ``given`` are URIs of
    Kafka sources as in ``--source``, each of them optionally with a name: ``clicks=kafka://HOST:PORT/TOPIC``.
    """
    moment = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    history = History(files)
    known = {**_given(history, given), **(connections or {})}
    return combine(_reports(history, known, moment), moment)


def _reports(history: History, connections: Connections, now_ms: int) -> Iterator[SourceReport]:
    for identity in history.logs.identities.values():
        try:
            yield _report(history, identity, connections, now_ms)
        except (HeadwaterError, OSError, ImportError, ValueError) as error:
            yield _unchecked(identity.description or identity.label, _reason(error))


def _report(history: History, identity: SourceIdentity, connections: Connections, now_ms: int) -> SourceReport:
    value = _newest_offset(history, identity.id)
    match kind_of(value, history.logs.hint(identity.id, value)):
        case "kafka":
            connection = connections.get(identity.label) or connections.get("")
            if connection is None and uri_kind(identity.uri) == "kafka":
                connection = Connection.from_uri(identity.uri or "")
            if connection is None:
                reason = "the broker is unknown; name it with --source kafka://HOST:PORT/TOPIC"
                return _unchecked(identity.description, reason)
            return _kafka_report(kafka_needs(history, identity, now_ms), connection, now_ms)
        case "files":
            return _file_report(history, identity)
        case _:
            return SourceReport()


def _newest_offset(history: History, source: str) -> Any:
    for number in reversed(history.logs.offsets.ids):
        value = _offset(history, number, source)
        if value is not None:
            return value
    return None


def _offset(history: History, number: int | None, source: str) -> Any:
    entry = None if number is None else history.logs.offsets.get(number)
    text = text_of_source(entry, source)
    return offset_value(text)


def _kafka_report(needs: KafkaNeeds, connection: Connection, now_ms: int) -> SourceReport:
    if not needs.topics:
        return SourceReport()
    facts = topic_facts(Cluster(connection), needs.topics)
    now, earlier = kafka_sources.offsets_to_time(needs, facts)
    times = RecordTimes(timestamps_at(connection, now), timestamps_at(connection, earlier))
    return kafka_sources.report_on(needs, facts, times, now_ms)


def kafka_needs(history: History, identity: SourceIdentity, now_ms: int) -> KafkaNeeds:
    """Return what a stream needs of a Kafka source."""
    logs, source, recorded = history.logs, identity.id, read_topics(history.files)
    done, planned = logs.commits.latest, logs.offsets.latest
    # A batch that Spark has committed may be the last one in either log.
    done = planned if done is not None and planned is not None and planned < done else done
    is_pending = planned is not None and planned != done
    first = logs.offsets.ids[0] if logs.offsets.ids else None
    since = next((number for number in logs.offsets.ids if _is_recent(logs.offsets.modified_ms(number), now_ms)), None)
    before = None if since is None else _start_of(history, since, source)
    return KafkaNeeds(
        identity.label,
        _partitions(_start_of(history, planned, source) if is_pending else _offset(history, done, source)),
        _partitions(_offset(history, planned, source)) if is_pending else {},
        _partitions(_start_of(history, first, source)),
        first,
        _partitions(before),
        logs.offsets.modified_ms(since) if since is not None else None,
        current_ids(recorded, -1 if planned is None else planned),
        {} if first is None else recreated_since(recorded, first),
        planned,
        _is_assigned(identity),
    )


def _is_assigned(identity: SourceIdentity) -> bool:
    if uri_kind(identity.uri) != "kafka":
        return False
    return any(name.lower() == "assign" for name in parse_uri(identity.uri or "").options)


def _is_recent(at_ms: int | None, now_ms: int) -> bool:
    return at_ms is not None and at_ms >= now_ms - SPEED_WINDOW_MS


def _start_of(history: History, number: int | None, source: str) -> Any:
    """Return where a batch starts: where the one before it ends or, for the first one, where the source began.

    A query that tracks its progress asynchronously does not record every batch.
    """
    if number is None:
        return None
    if number == 0:
        return history.logs.hint(source, _offset(history, 0, source)).initial
    return _offset(history, max((one for one in history.logs.offsets.ids if one < number), default=None), source)


def _partitions(value: Any) -> dict[Partition, int]:
    return {Partition(*place): offset for place, offset in (kafka_partitions(value) or {}).items()}


def _file_report(history: History, identity: SourceIdentity) -> SourceReport:
    needs = file_needs(history, identity)
    if needs is None:
        return _unchecked(identity.description, "the source's log is incomplete; headwater fsck shows why")
    found = file_sources.find_files(needs)
    if not history.files.is_local and needs.entries and not found.logged and not _is_remote(needs):
        return _unchecked(identity.description, "its files may be on another machine")
    return file_sources.report_on(needs, found)


def _is_remote(needs: FileNeeds) -> bool:
    return "://" in file_sources.unquoted(needs.entries[0].path)


def file_needs(history: History, identity: SourceIdentity) -> FileNeeds | None:
    """Return what a stream has read from a file source; None if the source's log is incomplete."""
    log = history.source_log(identity.id)
    position = log_offset(_offset(history, history.logs.commits.latest, identity.id))
    entries: tuple[Any, ...] | None = ()
    if log.names.latest is not None:
        try:
            entries = log.everything_upto(log.names.latest)
        except CheckpointUnreadable:
            entries = None
    if entries is None:
        return None
    read = tuple(entry for entry in entries if position is not None and entry.batch_id <= position)
    waiting = tuple(entry for entry in entries if position is None or entry.batch_id > position)
    uri = identity.uri or ""
    folder = plain_path(folder_of(uri)) if uri.startswith(FILES) else identity.traits.folder
    options = {name.lower(): value for name, value in parse_uri(uri).options.items()} if uri.startswith(FILES) else None
    return FileNeeds(identity.label, read, waiting, folder, options)


def _unchecked(path: str, reason: str) -> SourceReport:
    return SourceReport((Finding("warning", "source-unchecked", path, f"could not be checked: {reason}"),))


def _reason(error: BaseException) -> str:
    if not isinstance(error, HeadwaterError):
        return str(error) or type(error).__name__
    reason = f" ({error.evidence['reason']})" if "reason" in error.evidence else ""
    return f"{error.problem}{reason}" + (f"; {error.remedy}" if isinstance(error, UsageProblem) else "")


def _given(history: History, given: Sequence[str]) -> dict[str, Connection]:
    if not given:
        return {}
    labels = [identity.label for identity in history.logs.identities.values()]
    found = {}
    for text in given:
        name, equals, uri = text.partition("=")
        if not equals or ":" in name:
            name, uri = "", text
        elif name not in labels:
            raise UsageProblem(
                "bad-option",
                f"the query has no source named {name}",
                evidence={"sources": ", ".join(labels)},
                remedy=f"--source {uri}",
            )
        if uri_kind(uri) != "kafka":
            raise UsageProblem(
                "bad-option",
                "--source names the broker of a Kafka source",
                evidence={"found": uri},
                remedy="--source kafka://HOST:PORT/TOPIC",
            )
        found[name] = Connection.from_uri(uri)
    return found
