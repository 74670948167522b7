"""The number of records that a job has not read yet, refreshed in the background while the page is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import JobRecord, uri_kind
from headwater.checkpoint.source_offsets import SourceRange, kafka_partitions
from headwater.core.errors import HeadwaterError, UsageProblem
from headwater.kafka.clients import Cluster
from headwater.kafka.offsets import Partition, end_offsets, lag
from headwater.kafka.options import Connection

REFRESH_SECONDS = 2.0


class KafkaLag:
    """The lag of each Kafka source of a job, according to the last reply of its broker.

    The connection is that of the recorded source. A caller that knows more, such as a password that the record does
    not contain, passes ``connection``.
    """

    def __init__(self, connection: Connection | None = None) -> None:
        self.problem: str | None = None
        """Why the lag is unknown; None as long as the brokers reply."""
        self._given = connection
        self._clusters: dict[str, Cluster] = {}
        self._ends: dict[str, dict[Partition, int]] = {}
        self._refreshed_at = 0.0
        self._refreshing = threading.Lock()

    def rows(self, job: JobRecord, batches: Sequence[Batch]) -> int | None:
        """Return the lag of all sources behind the newest batch at once; None while that of any is unknown."""
        found = self.by_source(job, batches)
        known = [rows for rows in found.values() if rows is not None]
        return sum(known) if known and len(known) == len(found) else None

    def by_source(self, job: JobRecord, batches: Sequence[Batch]) -> dict[str, int | None]:
        """Return the lag of each Kafka source by its label, at once; None while it is unknown."""
        found = [(source, uri) for source in _kafka_sources(batches) if (uri := _uri(source, job, batches[-1]))]
        if found and time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = time.monotonic()
            places: dict[str, list[Partition]] = {}
            for source, uri in found:
                places.setdefault(uri, []).extend(_positions(source))
            threading.Thread(target=self._refresh, args=(places,), daemon=True).start()
        return {
            source.label: lag(self._ends[uri], _positions(source)) if uri in self._ends else None
            for source, uri in found
        }

    def _refresh(self, places: Mapping[str, list[Partition]]) -> None:
        if not self._refreshing.acquire(blocking=False):
            return
        problem = None
        try:
            for uri, partitions in places.items():
                try:
                    self._ends[uri] = end_offsets(self._cluster(uri, only=len(places) == 1), partitions)
                except HeadwaterError as error:
                    self._clusters.pop(uri, None)
                    self._ends.pop(uri, None)
                    problem = f"{error.problem}; {error.remedy}" if isinstance(error, UsageProblem) else error.problem
            self.problem = problem
        finally:
            self._refreshing.release()

    def _cluster(self, uri: str, *, only: bool) -> Cluster:
        if uri not in self._clusters:
            recorded, given = Connection.from_uri(uri), self._given
            cluster = Cluster(given if given and (only or given.servers == recorded.servers) else recorded)
            cluster.metadata()  # names the cause of a failed connection, which other requests do not
            self._clusters[uri] = cluster
        return self._clusters[uri]


def _kafka_sources(batches: Sequence[Batch]) -> list[SourceRange]:
    return [source for source in batches[-1].sources if _positions(source)] if batches else []


def _uri(source: SourceRange, job: JobRecord, batch: Batch) -> str | None:
    uri = source.uri or (job.source if len(batch.sources) == 1 else None)
    return uri if uri_kind(uri) == "kafka" else None


def _positions(source: SourceRange) -> dict[Partition, int]:
    """Return the next offset to read of each partition."""
    found = kafka_partitions(source.end) if source.kind == "kafka" else None
    return {Partition(*place): offset for place, offset in (found or {}).items()}
