"""Purchases of many users in a topic, and each user's right total."""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.broker import PARTITIONS, create_topic, delete_topics, records_in

USERS = 50_000
SEED = 11


def purchases(count: int, users: int = USERS) -> Iterator[tuple[str, int]]:
    """User and amount, the same for the same numbers."""
    dice = random.Random(SEED)
    for _ in range(count):
        yield f"user-{dice.randrange(users)}", dice.randrange(1, 1000)


def totals(count: int, users: int = USERS) -> dict[str, int]:
    found: dict[str, int] = {}
    for user, amount in purchases(count, users):
        found[user] = found.get(user, 0) + amount
    return found


def purchases_topic(bootstrap: str, count: int, users: int = USERS) -> str:
    """A topic with so many purchases; one from an earlier run serves again."""
    from confluent_kafka import Producer

    topic = f"purchases-{count}-{users}"
    there = records_in(bootstrap, topic)
    if there == count:
        return topic
    if there is not None:
        delete_topics(bootstrap, topic)
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number, (user, amount) in enumerate(purchases(count, users)):
        value = f"{{'user': '{user}', 'shopping': {amount}, 'date': '20-04-2020'}}".encode()
        while True:
            try:
                producer.produce(topic, value, partition=number // 64 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return topic
