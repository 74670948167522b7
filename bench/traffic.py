"""A steady stream of visits that carry the time at which they were sent, and an independent reader of what comes out."""

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
class Traffic:
    """Sends at a rate until told to stop; ``sent`` holds number, browser and time in seconds of every record."""

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
class Reader:
    """Reads a topic as it grows; ``got`` holds the time of arrival and the value of every record."""

    bootstrap: str
    topic: str
    partitions: int
    got: list[tuple[float, bytes]] = field(default_factory=list)
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
                    self.got.append((time.time(), message.value()))
        consumer.close()


def latencies_of_updates(sent: list[tuple[int, str, float]], got: list[tuple[float, bytes]]) -> list[float | None]:
    """For every visit, the seconds until a row of its browser and window came that counts it.

    Every row tells the newest event time that it counts, so the first row with a time not before the visit's is the one.
    None where no such row came.
    """
    rows: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for arrived, value in got:
        browser, start_ms, last_ms = _update(json.loads(value))
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


def latencies_of_records(sent: list[tuple[int, str, float]], got: list[tuple[float, bytes]]) -> list[float | None]:
    """For every visit, the seconds until it came out itself, known by its number."""
    arrived = {}
    for at, value in got:
        arrived.setdefault(json.loads(value)["userId"], at)
    return [arrived[number] - at if number in arrived else None for number, _, at in sent]


def _update(row: dict[str, object]) -> tuple[str, int, int]:
    window = row.get("window")
    if isinstance(window, dict):
        return str(row["browser"]), _ms(window["start"]), _ms(row["last_event_time_in_window"])
    return str(row["browser"]), _ms(row["start"]), _ms(row["last"])


def _ms(moment: object) -> int:
    if isinstance(moment, str):
        return round(datetime.fromisoformat(moment.replace(" ", "T").replace("Z", "+00:00")).timestamp() * 1000)
    assert isinstance(moment, int)
    return moment
