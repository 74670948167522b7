"""Fuzzed input: the stream continues, and every record is counted, malformed or late."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker_support import Broker, headwater

sys.path.insert(0, str(Path(__file__).parent.parent.parent))  # soak/ is next to src/

from soak.fuzz import HUGE_LINE_BYTES, Fuzzed, fuzzed_visits
from soak.services import KafkaService

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

RECORDS = int(os.environ.get("FUZZED_RECORDS", "100000"))
SEED = int(os.environ.get("SEED", "11"))
MAX_MESSAGE_BYTES = 2 * HUGE_LINE_BYTES
FILES = 20


def write_files(folder: Path, records: list[Fuzzed]) -> tuple[str, dict[Any, Fuzzed]]:
    """Write twenty files; return a source that reads two at a time, and the place of each record."""
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


def send_to_kafka(broker: Broker, topic: str, records: list[Fuzzed]) -> tuple[str, dict[Any, Fuzzed]]:
    """Send to two partitions; return a source that reads a tenth of the records per batch, and the place of each record."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    new = NewTopic(topic, num_partitions=2, config={"max.message.bytes": str(MAX_MESSAGE_BYTES)})
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([new])[topic].result(30)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "queue.buffering.max.kbytes": 1_000_000,
    }
    producer = Producer(settings)
    placed: dict[Any, Fuzzed] = {}

    def record_place(record: Fuzzed) -> Any:
        def on_delivery(error: Any, message: Any) -> None:
            assert error is None, error
            placed[message.partition(), message.offset()] = record

        return on_delivery

    for number, record in enumerate(records):
        producer.produce(topic, record.data, partition=number % 2, on_delivery=record_place(record))
        producer.poll(0)
    assert producer.flush(120) == 0
    return f"kafka://{broker.bootstrap}/{topic}?maxOffsetsPerTrigger={len(records) // 10}", placed


@pytest.mark.parametrize("source", ["files", "kafka"])
def test_every_record_is_accounted_for(source: str, broker: Broker, tmp_path: Path) -> None:
    """Every record that was sent is in the sink's counts, or is reported as malformed or late."""
    records = list(fuzzed_visits(SEED, RECORDS, tombstones=source == "kafka"))
    uri, placed = (
        write_files(tmp_path / "in", records)
        if source == "files"
        else send_to_kafka(broker, f"fuzz-{os.getpid()}", records)
    )
    assert len(placed) == RECORDS
    out = f"fuzz-{source}-{os.getpid()}-out"
    sink = f"kafka://{broker.bootstrap}/{out}?key=browser,window"
    checkpoint = tmp_path / "checkpoint"
    arguments = ["browser-stats-stateful", "--source", uri, "--sink", sink, "--checkpoint", checkpoint]
    ran = headwater("run", *arguments, "--trigger", "available-now", cwd=tmp_path, timeout=1500)
    assert ran.returncode == 0, ran.stderr[-3000:]
    late_result = headwater("late", checkpoint, "--json", cwd=tmp_path, timeout=1500)
    assert late_result.returncode == 0, late_result.stderr[-3000:]
    # splitlines() would also split at other line separators, which JSON strings may contain.
    fate = {place_of(row): row["reason"] for row in map(json.loads, filter(None, late_result.stdout.split("\n")))}
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
    either = Counter((r.kind, fate.get(p, "decoded")) for p, r in placed.items() if r.expected is None)
    late = len(fate) - malformed
    print(
        f"{source}: {RECORDS} records, {RECORDS - len(fate)} decoded, {malformed} malformed, {late} late; {dict(either)}"
    )


def place_of(row: dict[str, Any]) -> Any:
    return (row["partition"], row["offset"]) if row["kind"] == "kafka" else (Path(row["path"]).name, row["line"])


def sums_in(broker: Broker, topic: str) -> Counter[str | None]:
    """Return the visits per browser over all windows, by the last write of each window."""
    last = {key: json.loads(value or b"") for key, value in KafkaService.at(broker.bootstrap).read(topic)}
    found: Counter[str | None] = Counter()
    for row in last.values():
        found[row.get("browser")] += row["count"]
    return found
