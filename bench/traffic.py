"""A steady stream of timestamped visits, an independent reader of the output, and the latency between the two."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

BROWSERS = ("Chrome", "Chrome", "Chrome", "Safari", "Firefox", "Edge", "Opera")
WINDOW_MS = 300_000


@dataclass
class VisitProducer:
    """Sends visits at a rate until stopped; ``sent`` holds the number, browser and send time in seconds of each."""

    bootstrap: str
    topic: str
    rate: int
    sent: list[tuple[int, str, float]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "acks": "1", "log_level": 3})
        began, number = time.time(), 0
        while not self._stop.is_set():
            now = time.time()
            due = int((now - began) * self.rate)
            while number < due:
                at = time.time()
                moment = datetime.fromtimestamp(int(at * 1000) / 1000, UTC).isoformat(timespec="milliseconds")
                browser = BROWSERS[number % len(BROWSERS)]
                visit = {
                    "userId": number,
                    "page": "index.html",
                    "eventTime": moment.replace("+00:00", "Z"),
                    "browser": browser,
                }
                producer.produce(self.topic, json.dumps(visit).encode(), partition=number % 2)
                self.sent.append((number, browser, at))
                number += 1
            producer.poll(0)
            self._stop.wait(0.001)
        producer.flush(10)


@dataclass
class OutputReader:
    """Reads a topic as it grows; ``received`` holds the arrival time and value of every record."""

    bootstrap: str
    topic: str
    partitions: int
    received: list[tuple[float, bytes]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reader-{self.topic}",
                "fetch.wait.max.ms": 50,
                "log_level": 3,
            }
        )
        consumer.assign([TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in range(self.partitions)])
        while not self._stop.is_set():
            for message in consumer.consume(500, 0.01):
                if message.error() is None and message.value():
                    self.received.append((time.time(), message.value()))
        consumer.close()


def update_latencies(sent: list[tuple[int, str, float]], received: list[tuple[float, bytes]]) -> list[float | None]:
    """Return, for each visit, the seconds until a row arrived that counts it, or None if none arrived.

    Every row has the newest event time that it counts. The first row of the visit's browser and window whose time is not
    before the visit's counts it.
    """
    rows: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for arrived, value in received:
        browser, start_ms, last_ms = _parse_update(json.loads(value))
        rows.setdefault((browser, start_ms), []).append((arrived, last_ms))
    waiting: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for _, browser, at in sent:
        event_ms = int(at * 1000)
        waiting.setdefault((browser, event_ms // WINDOW_MS * WINDOW_MS), []).append((event_ms, at))
    found: list[float | None] = []
    for key, visits in waiting.items():
        updates = iter(rows.get(key, ()))
        update = next(updates, None)
        for event_ms, at in visits:
            while update is not None and update[1] < event_ms:
                update = next(updates, None)
            found.append(None if update is None else update[0] - at)
    return found


def record_latencies(sent: list[tuple[int, str, float]], received: list[tuple[float, bytes]]) -> list[float | None]:
    """Return, for each visit, the seconds until the record with its number arrived, or None if it did not."""
    arrived = {}
    for at, value in received:
        arrived.setdefault(json.loads(value)["userId"], at)
    return [arrived[number] - at if number in arrived else None for number, _, at in sent]


def _parse_update(row: dict[str, object]) -> tuple[str, int, int]:
    window = row.get("window")
    if isinstance(window, dict):
        return str(row["browser"]), _ms(window["start"]), _ms(row["last_event_time_in_window"])
    return str(row["browser"]), _ms(row["start"]), _ms(row["last"])


def _ms(moment: object) -> int:
    if isinstance(moment, str):
        return round(datetime.fromisoformat(moment.replace(" ", "T").replace("Z", "+00:00")).timestamp() * 1000)
    assert isinstance(moment, int)
    return moment
