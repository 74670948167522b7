"""How many records a topic has that no batch has read, as the broker tells it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from headwater.checkpoint.history import Batch
from headwater.checkpoint.record import JobRecord

PATIENCE_SECONDS = 3.0
EVERY_SECONDS = 2.0
SILENT = logging.getLogger("headwater.kafka")


class KafkaLag:
    """Asked often, answers at once with what a thread of its own last heard. Only for jobs whose broker is on record."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], int] = {}
        self._servers: str | None = None
        self._asked_at = 0.0
        self._asking = threading.Lock()

    def rows(self, job: JobRecord, batches: tuple[Batch, ...]) -> int | None:
        """Records behind the newest batch; None where that is not known."""
        servers = urlsplit(job.source or "").netloc if job.source_kind == "kafka" else ""
        read = _read_so_far(batches)
        if not servers or not read:
            return None
        if time.monotonic() - self._asked_at >= EVERY_SECONDS:
            self._asked_at = time.monotonic()
            threading.Thread(target=self._ask, args=(servers, sorted(read)), daemon=True).start()
        if not self._ends:
            return None
        return sum(max(0, self._ends[place] - offset) for place, offset in read.items() if place in self._ends)

    def _ask(self, servers: str, places: list[tuple[str, int]]) -> None:
        if not self._asking.acquire(blocking=False):
            return
        try:
            self._ends = _end_offsets(servers, places)
        finally:
            self._asking.release()


def _read_so_far(batches: tuple[Batch, ...]) -> dict[tuple[str, int], int]:
    if not batches:
        return {}
    found: dict[tuple[str, int], int] = {}
    for source in batches[-1].sources:
        if source.kind == "kafka" and isinstance(source.end, dict):
            for topic, partitions in source.end.items():
                found |= {(topic, int(partition)): int(offset) for partition, offset in partitions.items()}
    return found


def _end_offsets(servers: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Empty when no broker answers."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: PLC0415  only Kafka streams pay for it

    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "headwater", "enable.auto.commit": False}
    consumer = Consumer(settings, logger=SILENT)
    try:
        return {
            (topic, partition): consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=PATIENCE_SECONDS
            )[1]
            for topic, partition in places
        }
    except KafkaException:
        return {}
    finally:
        consumer.close()
