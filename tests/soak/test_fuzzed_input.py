"""Input nobody should send: the stream goes on, and every record is counted, malformed or late."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker_support import Broker, headwater

sys.path.insert(0, str(Path(__file__).parent.parent.parent))  # soak/ is beside src/, not in it

from soak.fuzz import HUGE_LINE_BYTES, Fuzzed, fuzzed_visits
from soak.services import KafkaService

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

RECORDS = int(os.environ.get("FUZZED_RECORDS", "100000"))
SEED = int(os.environ.get("SEED", "11"))
ROOM = 2 * HUGE_LINE_BYTES
FILES = 20


def put_in_files(folder: Path, records: list[Fuzzed]) -> tuple[str, dict[Any, Fuzzed]]:
    """Twenty files, read two at a time."""
    folder.mkdir()
    placed: dict[Any, Fuzzed] = {}
    size = -(-len(records) // FILES)
    for number in range(FILES):
        part = records[number * size : (number + 1) * size]
        file = folder / f"{number:03d}.json"
        file.write_bytes(b"".join((record.data or b"") + b"\n" for record in part))
        os.utime(file, (1_700_000_000 + number,) * 2)
        placed |= {(file.name, line): record for line, record in enumerate(part, 1)}
    return f"files:{folder}?maxFilesPerTrigger=2", placed


def put_in_kafka(broker: Broker, topic: str, records: list[Fuzzed]) -> tuple[str, dict[Any, Fuzzed]]:
    """Two partitions, a tenth of the records a batch."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    new = NewTopic(topic, num_partitions=2, config={"max.message.bytes": str(ROOM)})
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([new])[topic].result(30)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "message.max.bytes": ROOM,
        "queue.buffering.max.kbytes": 1_000_000,
    }
    producer = Producer(settings)
    placed: dict[Any, Fuzzed] = {}

    def noted(record: Fuzzed) -> Any:
        def on_delivery(error: Any, message: Any) -> None:
            assert error is None, error
            placed[message.partition(), message.offset()] = record

        return on_delivery

    for number, record in enumerate(records):
        producer.produce(topic, record.data, partition=number % 2, on_delivery=noted(record))
        producer.poll(0)
    assert producer.flush(120) == 0
    return f"kafka://{broker.bootstrap}/{topic}?maxOffsetsPerTrigger={len(records) // 10}", placed


@pytest.mark.parametrize("source", ["files", "kafka"])
def test_every_record_is_accounted_for(source: str, broker: Broker, tmp_path: Path) -> None:
    """What the sink counted, what was malformed and what was late add up to what was sent, record by record."""
    records = list(fuzzed_visits(SEED, RECORDS, tombstones=source == "kafka"))
    uri, placed = (
        put_in_files(tmp_path / "in", records)
        if source == "files"
        else put_in_kafka(broker, f"fuzz-{os.getpid()}", records)
    )
    assert len(placed) == RECORDS
    out = f"fuzz-{source}-{os.getpid()}-out"
    sink = f"kafka://{broker.bootstrap}/{out}?key=browser,window"
    checkpoint = tmp_path / "checkpoint"
    words = ["browser-stats-stateful", "--source", uri, "--sink", sink, "--checkpoint", checkpoint]
    ran = headwater("run", *words, "--trigger", "available-now", cwd=tmp_path, timeout=1500)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = headwater("late", checkpoint, "--json", cwd=tmp_path, timeout=1500)
    assert told.returncode == 0, told.stderr[-3000:]
    # The records hold other ends of lines than this one, as JSON may.
    fate = {place_of(row): row["reason"] for row in map(json.loads, filter(None, told.stdout.split("\n")))}
    assert set(fate) <= set(placed)

    wrong = Counter(
        (record.kind, record.expected)
        for place, record in placed.items()
        if record.expected and (record.expected == "malformed") != (fate.get(place) == "malformed")
    )
    assert not wrong
    counted = Counter(record.browser for place, record in placed.items() if record.has_time and place not in fate)
    assert sums_in(broker, out) == counted
    lines = [json.loads(line) for line in (checkpoint / "_headwater" / "progress.jsonl").read_text().splitlines()]
    assert sum(line["input_rows"] for line in lines) == RECORDS
    malformed = sum(reason == "malformed" for reason in fate.values())
    assert sum(line["malformed"] for line in lines) == malformed
    unsure = Counter((r.kind, fate.get(p, "decoded")) for p, r in placed.items() if r.expected is None)
    late = len(fate) - malformed
    print(
        f"{source}: {RECORDS} records, {RECORDS - len(fate)} decoded, {malformed} malformed, {late} late; {dict(unsure)}"
    )


def place_of(row: dict[str, Any]) -> Any:
    return (row["partition"], row["offset"]) if row["kind"] == "kafka" else (Path(row["path"]).name, row["line"])


def sums_in(broker: Broker, topic: str) -> Counter[str | None]:
    """Visits per browser over all windows, the last write of each window counting."""
    last = {key: json.loads(value or b"") for key, value in KafkaService.at(broker.bootstrap).read(topic)}
    found: Counter[str | None] = Counter()
    for row in last.values():
        found[row.get("browser")] += row["count"]
    return found
