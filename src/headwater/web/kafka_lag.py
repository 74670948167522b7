"""The number of records that a job has not read yet, refreshed in the background while the page is open."""

from __future__ import annotations

import threading
import time

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import JobRecord
from headwater.checkpoint.source_offsets import kafka_partitions
from headwater.core.errors import HeadwaterError, UsageProblem
from headwater.kafka.clients import Cluster
from headwater.kafka.offsets import Partition, end_offsets, lag
from headwater.kafka.options import Connection

REFRESH_SECONDS = 2.0


class KafkaLag:
    """The lag of a job behind its topics, according to the last reply of the broker.

    The connection is that of the recorded source. A caller that knows more, such as a password that the record does
    not contain, passes ``connection``.
    """

    def __init__(self, connection: Connection | None = None) -> None:
        self.problem: str | None = None
        """Why the lag is unknown; None as long as the broker replies."""
        self._given = connection
        self._cluster: Cluster | None = None
        self._ends: dict[Partition, int] = {}
        self._refreshed_at = 0.0
        self._refreshing = threading.Lock()

    def rows(self, job: JobRecord, batches: tuple[Batch, ...]) -> int | None:
        """Return the lag behind the newest batch at once; None while it is unknown."""
        positions = _positions(batches)
        if job.source_kind != "kafka" or not positions:
            return None
        if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = time.monotonic()
            threading.Thread(target=self._refresh, args=(job.source, list(positions)), daemon=True).start()
        return lag(self._ends, positions) if self._ends else None

    def _refresh(self, source: str, places: list[Partition]) -> None:
        if not self._refreshing.acquire(blocking=False):
            return
        try:
            if self._cluster is None:
                self._cluster = Cluster(self._given or Connection.from_uri(source))
                self._cluster.metadata()  # names the cause of a failed connection, which other requests do not
            self._ends = end_offsets(self._cluster, places)
            self.problem = None
        except HeadwaterError as error:
            self._cluster, self._ends = None, {}
            self.problem = f"{error.problem}; {error.remedy}" if isinstance(error, UsageProblem) else error.problem
        finally:
            self._refreshing.release()


def _positions(batches: tuple[Batch, ...]) -> dict[Partition, int]:
    """Return the next offset to read of each partition."""
    ends = [kafka_partitions(source.end) for source in batches[-1].sources if source.kind == "kafka"] if batches else []
    return {Partition(*place): offset for end in ends if end for place, offset in end.items()}
