"""Read and write the records of a topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from headwater.core.errors import ServiceUnreachable, UsageProblem
from headwater.core.times import iso_from_ms
from headwater.kafka import clients
from headwater.kafka.options import Connection
from headwater.kafka.topics import ensure_topic, find_topic

QUEUE_WAIT_SECONDS = 0.05
DELIVERY_SECONDS = 30
# Consecutive records go to the same partition, so that each partition keeps long runs of a stream in order.
RUN_LENGTH = 64


@dataclass(frozen=True)
class Record:
    """A record as a consumer receives it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None

    def as_dict(self) -> dict[str, object]:
        """Return the record in the form that ``--json`` prints."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": None if self.timestamp_ms is None else iso_from_ms(self.timestamp_ms),
            "key": text(self.key),
            "value": text(self.value),
        }


def text(content: bytes | None) -> str | None:
    """Return bytes as text, with replacement characters for what is not UTF-8."""
    return None if content is None else content.decode("utf-8", errors="replace")


class TopicWriter:
    """Writes records to a topic, in order and without duplicates. Leaving the ``with`` block waits for all deliveries.

    The topic is created if it does not exist; ``created`` is then true.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self.connection, self.topic = connection, topic
        self.partitions, self.created = ensure_topic(connection, topic)
        self.sent = 0
        self._failure: str | None = None
        self._producer = clients.producer(
            connection,
            {
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 1 << 20,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 200_000,
                "message.timeout.ms": DELIVERY_SECONDS * 1000,
                # A callback for each record would cost more than the record.
                "delivery.report.only.error": True,
                "on_delivery": self._note_failure,
            },
        )

    def send(self, value: bytes | None, *, key: bytes | None = None, partition: int | None = None) -> None:
        """Queue one record; without ``partition`` its key decides where it goes."""
        if partition is not None and not 0 <= partition < self.partitions:
            raise UsageProblem(
                "no-such-partition",
                f"topic {self.topic} has no partition {partition}",
                evidence={"partitions": f"0 to {self.partitions - 1}"},
                remedy="omit --partition, or create a topic with more partitions",
            )
        self._enqueue(value, key, -1 if partition is None else partition)
        self.sent += 1
        self._poll(0)

    def send_values(self, values: Sequence[bytes]) -> None:
        """Queue many records. Only the position in the stream decides the partition, so a repeated run is identical."""
        produce, topic = self._producer.produce, self.topic
        for start in range(0, len(values), RUN_LENGTH):
            partition = (self.sent // RUN_LENGTH) % self.partitions
            for value in values[start : start + RUN_LENGTH]:
                try:
                    produce(topic, value, None, partition)
                except BufferError:
                    self._enqueue(value, None, partition)
            self.sent += min(RUN_LENGTH, len(values) - start)
        self._poll(0)

    def flush(self) -> None:
        """Wait until the broker has acknowledged every record."""
        while self._producer.flush(1.0) and not self._failure:
            pass
        self._poll(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ServiceUnreachable):
            self._producer.purge()
        else:
            self.flush()

    def _enqueue(self, value: bytes | None, key: bytes | None, partition: int) -> None:
        while True:
            try:
                self._producer.produce(self.topic, value, key, partition)
            except BufferError:
                self._poll(QUEUE_WAIT_SECONDS)
            else:
                return

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if self._failure:
            raise ServiceUnreachable(
                "kafka-write-failed",
                f"records could not be written to {self.topic}",
                evidence={"broker": self.connection.servers, "reason": self._failure},
                remedy="headwater broker status",
            )

    def _note_failure(self, error: Any, _message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error.str()


def read_records(
    connection: Connection,
    topic: str,
    *,
    from_beginning: bool = False,
    count: int | None = None,
    quiet_seconds: float | None = None,
) -> Iterator[Record]:
    """Yield records as they arrive, until there were ``count`` or none has arrived for ``quiet_seconds``."""
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415

    offsets = find_topic(connection, topic).offsets
    group: dict[str, object] = {
        "group.id": f"headwater-{uuid.uuid4()}",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
    }
    client = clients.consumer(connection, group)
    try:
        client.assign(
            [TopicPartition(topic, number, ends[0 if from_beginning else 1]) for number, ends in offsets.items()]
        )
        count_so_far = 0
        last_record_at = time.monotonic()
        while count is None or count_so_far < count:
            wanted = 1000 if count is None else min(1000, count - count_so_far)
            for message in client.consume(wanted, timeout=0.1):
                if message.error():
                    raise clients.connection_error(connection, message.error())
                kind, timestamp_ms = message.timestamp()
                yield Record(
                    topic,
                    message.partition(),
                    message.offset(),
                    timestamp_ms if kind else None,
                    message.key(),
                    message.value(),
                )
                count_so_far += 1
                last_record_at = time.monotonic()
            if quiet_seconds is not None and time.monotonic() - last_record_at > quiet_seconds:
                return
    except KafkaException as failure:
        raise clients.connection_error(connection, failure.args[0]) from None
    finally:
        client.close()


def send_lines(
    writer: TopicWriter,
    lines: Iterable[bytes],
    *,
    partition: int | None,
    separator: str | None,
    encode: Callable[[bytes], bytes] | None = None,
) -> None:
    """Send each line as a record; with ``separator``, the part before it is the record's key. ``encode`` makes the value."""
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if separator is None:
            writer.send(encode(content) if encode else content, partition=partition)
            continue
        key, found, value = content.partition(separator.encode())
        if not found:
            raise UsageProblem(
                "no-key",
                f"line {number} has no key separator {separator!r}",
                evidence={"line": text(content[:200]), "sent before": writer.sent},
                remedy=f"write key{separator}value on every line, or omit --key-separator",
            )
        writer.send(encode(value) if encode else value, key=key, partition=partition)
