"""The Kafka broker of the benchmarks and its topics."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HEADWATER = str(Path(sys.executable).with_name("headwater"))
PARTITIONS = 2
FETCH_RECORDS = 20_000
DELETION_SECONDS = 30.0
REQUEST_SECONDS = 60.0
LOGGING = {"log_level": 4}


@contextlib.contextmanager
def local_broker(data: Path) -> Iterator[str]:
    """Yield the address of a broker that runs for the length of the block. Its topics are kept for the next run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    subprocess.run([HEADWATER, "broker", "start", "--data", str(data), "--port", str(port)], check=True)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run([HEADWATER, "broker", "stop", "--data", str(data)], check=False)


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    """Create an empty topic, waiting for the pending deletion of a topic with the same name."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **LOGGING})
    deadline = time.monotonic() + DELETION_SECONDS
    while True:
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        except KafkaException as refusal:
            if refusal.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def delete_topics(bootstrap: str, prefix: str) -> None:
    """Delete every topic with this prefix, including the repartition and changelog topics that engines derive from it.

    Consumer groups with the prefix are deleted too: the next run would otherwise resume from their committed offsets.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, **LOGGING})
    has_prefix = re.compile(rf"(^|__){re.escape(prefix)}($|[-_])")
    names = [name for name in admin.list_topics(timeout=REQUEST_SECONDS).topics if has_prefix.search(name)]
    found = admin.list_consumer_groups(request_timeout=REQUEST_SECONDS).result().valid
    groups = [group.group_id for group in found if has_prefix.search(group.group_id)]
    requests = [*(admin.delete_topics(names).values() if names else ())]
    requests += [*(admin.delete_consumer_groups(groups).values() if groups else ())]
    for request in requests:
        with contextlib.suppress(KafkaException):
            request.result()


def count_records(bootstrap: str, topic: str) -> int | None:
    """Return the number of records in a topic, or None if the topic does not exist."""
    consumer = _consumer(bootstrap)
    try:
        found = consumer.list_topics(timeout=REQUEST_SECONDS).topics.get(topic)
        if found is None:
            return None
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, number)) for number in found.partitions]
        return sum(end - first for first, end in ends)
    finally:
        consumer.close()


def ensure_visits_topic(bootstrap: str, records: int, *, seed: int = 7) -> str:
    """Return a topic with ``records`` visits, 5% of them late; a topic from an earlier run is reused."""
    topic = f"visits-{records}"
    existing = count_records(bootstrap, topic)
    if existing == records:
        return topic
    if existing is not None:
        delete_topics(bootstrap, topic)
    create_topic(bootstrap, topic)
    options = ["--count", str(records), "--late", "5%", "--seed", str(seed), "--json"]
    command = [HEADWATER, "generate", "visits", "--to", f"kafka://{bootstrap}/{topic}", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    tally = json.loads(done.stdout.splitlines()[-1])
    print(
        f"generated {tally['records']:,} visits, {tally['late']:,} of them late, in {tally['seconds']:.0f} s",
        flush=True,
    )
    return topic


def read_topic(bootstrap: str, topic: str) -> Iterator[tuple[int, int, bytes | None, bytes]]:
    """Yield partition, offset, key and value of every record up to the current end of the topic."""
    consumer = _consumer(bootstrap)
    try:
        partitions = consumer.list_topics(topic, timeout=REQUEST_SECONDS).topics[topic].partitions
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        # Transaction markers take up offsets without being records, so the end is detected by position, not by count.
        left = {place.partition: consumer.get_watermark_offsets(place)[1] for place in places}
        consumer.assign(places)
        empty_polls = 0
        while any(left.values()) and empty_polls < 10:
            messages = consumer.consume(FETCH_RECORDS, 0.5)
            empty_polls = 0 if messages else empty_polls + 1
            for message in messages:
                if message.error() is None:
                    yield message.partition(), message.offset(), message.key(), message.value() or b""
                    if message.offset() + 1 >= left[message.partition()]:
                        left[message.partition()] = 0
            for place in consumer.position(places):
                if place.offset >= left[place.partition]:
                    left[place.partition] = 0
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            **LOGGING,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
