"""Followers of jobs that read from Kafka: offsets in a consumer group for lag tools, and the ids of the topics.

Both work in a thread of their own: no batch waits for a broker, and no failure of theirs stops the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import OFFSETS
from headwater.checkpoint.log_entries import parse_offsets
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.source_offsets import kafka_partitions, offset_value
from headwater.core.errors import HeadwaterError, UsageProblem
from headwater.guards.check import Connections
from headwater.guards.topic_record import current_ids, read_topics, record_topics
from headwater.jobs.endpoints import Kafka
from headwater.jobs.job import Job
from headwater.kafka.clients import Cluster
from headwater.kafka.group_offsets import commit_offsets
from headwater.kafka.offsets import Partition
from headwater.kafka.options import Connection
from headwater.kafka.topic_facts import topic_ids
from headwater.spark.followers import Follower, OnBatch, Warn

# How long the end of a job waits for a broker.
COMMIT_SECONDS, RECORD_SECONDS = 15.0, 5.0


def kafka_connections(job: Job) -> dict[str, Connection]:
    """Return the connections of a job's Kafka sources by name; that of ``""`` applies to sources without a name."""
    found = {name: Connection(one.servers, one.options) for name, one in job.sources.items() if isinstance(one, Kafka)}
    return {"": next(iter(found.values())), **found} if found else {}


def committing_offsets(job: Job, group: str) -> Follower:
    """Return a follower that commits the offsets of each committed batch to a consumer group.

    Ordinary tools then show the lag of the stream. Raises ``UsageProblem`` if the job cannot have such a group.
    """
    _check_group(job, group)

    @contextmanager
    def follow(files: FileTree, warn: Warn) -> Iterator[OnBatch]:
        positions, clusters = _Positions(files, kafka_connections(job)), _Clusters()

        def commit(batch: int) -> None:
            for connection, places in positions.at(batch):
                commit_offsets(clusters.at(connection), group, places)

        with _latest_only(
            commit, "headwater-commit-group", COMMIT_SECONDS, warn, "offsets are not committed to the consumer group"
        ) as put:
            resumed = CheckpointLogs(files).commits.latest
            if resumed is not None:
                put(resumed)
            yield lambda batch: put(batch.batch_id)

    return follow


def _check_group(job: Job, group: str) -> None:
    sources = [one for one in job.sources.values() if isinstance(one, Kafka)]
    if not sources:
        raise UsageProblem(
            "bad-option",
            f"--commit-group needs a Kafka source, and {job.name} has none",
            evidence={"sources": ", ".join(one.kind for one in job.sources.values())},
            remedy="omit --commit-group, or read from Kafka: --source kafka://HOST:PORT/TOPIC",
        )
    if not group.strip():
        raise UsageProblem(
            "bad-option", "--commit-group takes the name of a consumer group", remedy="--commit-group NAME"
        )
    if any(one.options.get("kafka.group.id") == group for one in sources):
        raise UsageProblem(
            "bad-option",
            f"Spark's own consumers are members of the group {group}, so offsets cannot be committed to it",
            evidence={"kafka.group.id": group},
            remedy=f"--commit-group {group}-offsets",
        )


def guarding_topics(job: Job) -> Follower:
    """Return a follower that warns if a topic was recreated since the last run, and records the ids of the topics."""

    @contextmanager
    def follow(files: FileTree, warn: Warn) -> Iterator[OnBatch]:
        positions, clusters = _Positions(files, kafka_connections(job)), _Clusters()

        def find_ids(batch: int) -> dict[str, str]:
            return {
                topic: found
                for connection, places in positions.at(batch)
                for topic, found in topic_ids(clusters.at(connection), {place.topic for place in places}).items()
            }

        def check(batch: int) -> None:
            recorded = current_ids(read_topics(files), batch)
            for topic, found in find_ids(batch).items():
                if recorded.get(topic, found) != found:
                    warn(
                        f"warning: the topic {topic} was deleted and recreated since batch {batch}: the recorded offsets refer "
                        f"to records that no longer exist (headwater fsck {files.location} --sources)"
                    )

        recorded_topics: set[str] = set()

        def record(batch: int) -> None:
            topics = {place.topic for _, places in positions.at(batch) for place in places}
            if topics - recorded_topics:
                record_topics(files, find_ids(batch), batch)
                recorded_topics.update(topics)

        with (
            _latest_only(check, "headwater-topics", RECORD_SECONDS) as check_later,
            _latest_only(record, "headwater-topic-ids", RECORD_SECONDS) as record_later,
        ):
            resumed = CheckpointLogs(files).offsets.latest
            if resumed is not None:
                check_later(resumed)
            yield lambda batch: record_later(batch.batch_id)

    return follow


class _Clusters:
    """Connections that are kept open between batches."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], Cluster] = {}

    def at(self, connection: Connection) -> Cluster:
        key = (connection.servers, tuple(sorted(connection.options.items())))
        if key not in self._known:
            cluster = Cluster(connection)
            cluster.metadata()  # names the cause of a failed connection, which other requests do not
            self._known[key] = cluster
        return self._known[key]


class _Positions:
    """Where batches end in Kafka, read from the offset log."""

    def __init__(self, files: FileTree, connections: Connections) -> None:
        self._files = files
        self._connections = connections

    @cached_property
    def _labels(self) -> dict[str, str]:
        return {source: one.label for source, one in CheckpointLogs(self._files).identities.items()}

    def at(self, batch: int) -> list[tuple[Connection, dict[Partition, int]]]:
        """Return the next offset of each partition by connection; empty if the log does not have the batch."""
        path = f"{OFFSETS}/{batch}"
        try:
            entry = parse_offsets(self._files.read(path), path)
        except FileNotFoundError:
            return []
        found = []
        for source in entry.sources:
            places = kafka_partitions(offset_value(source.text)) or {}
            connection = self._connections.get(self._labels.get(source.name, "")) or self._connections.get("")
            if places and connection:
                found.append((connection, {Partition(*place): offset for place, offset in places.items()}))
        return found


@contextmanager
def _latest_only(
    work: Callable[[int], None], name: str, last_seconds: float, warn: Warn = lambda _: None, problem: str = ""
) -> Iterator[Callable[[int], None]]:
    """Yield a function that hands a batch to a thread. A batch that waits is replaced by the next; the last one is done.

    A problem is passed to ``warn`` once until the work succeeds again.
    """
    waiting: list[int] = []
    changed = threading.Condition()
    is_closed, shown = False, ""

    def run() -> None:
        nonlocal shown
        while True:
            with changed:
                changed.wait_for(lambda: waiting or is_closed)
                if not waiting:
                    return
                batch = waiting.pop()
            try:
                work(batch)
                shown = ""
            except HeadwaterError as error:
                if shown != str(error):
                    shown = str(error)
                    reason = error.evidence.get("reason")
                    warn(f"warning: {problem}: {error.problem}" + (f" ({reason})" if reason else ""))
            except OSError as error:
                warn(f"warning: {problem}: {error}")

    def put(batch: int) -> None:
        with changed:
            waiting[:] = [batch]
            changed.notify()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield put
    finally:
        with changed:
            is_closed = True
            changed.notify()
        thread.join(last_seconds)
