"""How long a real broker retains the records that a rewind has to read again."""

from __future__ import annotations

import time
import uuid

import pytest

from broker_support import Broker
from headwater.kafka.options import Connection
from headwater.kafka.records import TopicWriter
from headwater.kafka.retention import Retention, retention_from
from headwater.kafka.topics import create_topic

pytestmark = pytest.mark.services
DAY_MS = 86_400_000


def test_retention_by_time_and_size(broker: Broker) -> None:
    """Records are retained from the first one that is needed plus retention.ms; records that do not exist never expire."""
    topic, connection = f"t-{uuid.uuid4()}", Connection(broker.bootstrap)
    source = f"kafka://{broker.bootstrap}/{topic}"
    create_topic(connection, topic, 2)
    broker.configure(topic, retention_ms=2 * DAY_MS, retention_bytes=5_000_000)
    before = time.time() * 1000
    with TopicWriter(connection, topic) as writer:
        for number in range(4):
            writer.send(str(number).encode(), partition=0)
    after = time.time() * 1000
    found = retention_from(source, {(topic, 0): 2, (topic, 1): 0})
    assert before - 1 <= found.until_ms - 2 * DAY_MS <= after + 1
    assert found.limit_bytes == 5_000_000
    assert retention_from(source, {(topic, 0): 4, (topic, 1): 0, ("gone", 0): 1}) == Retention(None, None)
    broker.configure(topic, retention_ms=-1, retention_bytes=-1)
    assert retention_from(source, {(topic, 0): 0}) == Retention(None, None)
