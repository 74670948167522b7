"""A Kafka broker for the measurements, and the topics in it."""

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
FETCH = 20_000
DELETION_SECONDS = 30.0
ANSWER_SECONDS = 60.0
QUIET = {"log_level": 4}


@contextlib.contextmanager
def local_broker(data: Path) -> Iterator[str]:
    """The address of a broker that runs for the length of the block; its topics stay for the next time."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    subprocess.run([HEADWATER, "broker", "start", "--data", str(data), "--port", str(port)], check=True)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run([HEADWATER, "broker", "stop", "--data", str(data)], check=False)


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    """An empty topic; one of the same name that is being deleted is waited for."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
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
    """Every topic whose name begins so: an engine's own repartition and changelog topics as well, wherever it puts the name.

    Consumer groups of that name go too: the next run would begin where the last one ended.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    ours = re.compile(rf"(^|__){re.escape(prefix)}($|[-_])")
    names = [name for name in admin.list_topics(timeout=ANSWER_SECONDS).topics if ours.search(name)]
    found = admin.list_consumer_groups(request_timeout=ANSWER_SECONDS).result().valid
    groups = [group.group_id for group in found if ours.search(group.group_id)]
    requests = [*(admin.delete_topics(names).values() if names else ())]
    requests += [*(admin.delete_consumer_groups(groups).values() if groups else ())]
    for request in requests:
        with contextlib.suppress(KafkaException):
            request.result()


def records_in(bootstrap: str, topic: str) -> int | None:
    """How many records a topic holds, or None if there is no such topic."""
    consumer = _consumer(bootstrap)
    try:
        found = consumer.list_topics(timeout=ANSWER_SECONDS).topics.get(topic)
        if found is None:
            return None
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, number)) for number in found.partitions]
        return sum(end - first for first, end in ends)
    finally:
        consumer.close()


def visits_topic(bootstrap: str, records: int, *, seed: int = 7) -> str:
    """A topic with so many visits, 5 % of them late; one from an earlier run serves again."""
    topic = f"visits-{records}"
    there = records_in(bootstrap, topic)
    if there == records:
        return topic
    if there is not None:
        delete_topics(bootstrap, topic)
    create_topic(bootstrap, topic)
    options = ["--count", str(records), "--late", "5%", "--seed", str(seed), "--json"]
    command = [HEADWATER, "generate", "visits", "--to", f"kafka://{bootstrap}/{topic}", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    tally = json.loads(done.stdout.splitlines()[-1])
    print(f"made {tally['records']:,} visits, {tally['late']:,} of them late, in {tally['seconds']:.0f} s", flush=True)
    return topic


def read_topic(bootstrap: str, topic: str) -> Iterator[tuple[int, int, bytes | None, bytes]]:
    """Every record from the beginning to what is the end now: partition, offset, key, value."""
    consumer = _consumer(bootstrap)
    try:
        partitions = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        # A transactional producer leaves marks that take offsets but are no records: go by position, not by count.
        left = {place.partition: consumer.get_watermark_offsets(place)[1] for place in places}
        consumer.assign(places)
        quiet = 0
        while any(left.values()) and quiet < 10:
            messages = consumer.consume(FETCH, 0.5)
            quiet = 0 if messages else quiet + 1
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
            **QUIET,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
