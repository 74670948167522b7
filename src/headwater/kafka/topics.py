"""Topics: what there are, and making and removing them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.core.errors import ServiceUnreachable, UsageProblem
from headwater.kafka import clients

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient


LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True)
class Topic:
    """A topic, and for each partition the first offset that is kept and the next to be written."""

    name: str
    offsets: dict[int, tuple[int, int]]

    @property
    def records(self) -> int:
        """Exact unless the topic is compacted or written in transactions."""
        return sum(end - beginning for beginning, end in self.offsets.values())

    def as_dict(self) -> dict[str, object]:
        return {
            "topic": self.name,
            "partitions": len(self.offsets),
            "records": self.records,
            "offsets": {str(partition): list(ends) for partition, ends in self.offsets.items()},
        }


def list_topics(bootstrap: str, *, internal: bool = False) -> list[Topic]:
    """All topics by name; Kafka's own ones, which start with two underscores, only when asked for."""
    client = clients.admin(bootstrap)
    found = clients.cluster(client, bootstrap).topics
    names = sorted(name for name in found if internal or not name.startswith("__"))
    return _with_offsets(client, bootstrap, {name: sorted(found[name].partitions) for name in names})


def find_topic(bootstrap: str, name: str) -> Topic:
    """One topic; ``ServiceUnreachable`` when the broker does not have it."""
    client = clients.admin(bootstrap)
    found = clients.cluster(client, bootstrap).topics
    if name not in found:
        raise missing_topic(bootstrap, name, [other for other in sorted(found) if not other.startswith("__")])
    return _with_offsets(client, bootstrap, {name: sorted(found[name].partitions)})[0]


def create_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    _require_legal(name)
    client = clients.admin(bootstrap)
    if name in clients.cluster(client, bootstrap).topics:
        raise UsageProblem(
            "topic-exists",
            f"there is a topic {name} already",
            evidence={"broker": bootstrap},
            remedy=f"headwater topics delete {name}, or choose another name",
        )
    _settle(client.create_topics([NewTopic(name, partitions)])[name], bootstrap, f"cannot create topic {name}")


def ensure_topic(bootstrap: str, name: str) -> tuple[int, bool]:
    """How many partitions a topic has, made with the broker's default if need be, and whether it was made."""
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    _require_legal(name)
    client = clients.admin(bootstrap)
    found = clients.cluster(client, bootstrap).topics
    if name in found:
        return len(found[name].partitions), False
    made = client.create_topics([NewTopic(name, -1, -1)])[name]
    _settle(made, bootstrap, f"cannot create topic {name}", ignore="TOPIC_ALREADY_EXISTS")
    return len(find_topic(bootstrap, name).offsets), True


def delete_topic(bootstrap: str, name: str) -> None:
    find_topic(bootstrap, name)
    client = clients.admin(bootstrap)
    _settle(client.delete_topics([name])[name], bootstrap, f"cannot delete topic {name}")


def missing_topic(bootstrap: str, name: str, others: list[str]) -> ServiceUnreachable:
    evidence = {"topics": ", ".join(others[:10]) + (" ..." if len(others) > 10 else "") or "none yet"}
    return ServiceUnreachable(
        "topic-missing",
        f"the broker at {bootstrap} has no topic {name}",
        evidence=evidence,
        remedy=f"headwater topics create {name} --bootstrap {bootstrap}",
    )


def _with_offsets(client: AdminClient, bootstrap: str, wanted: dict[str, list[int]]) -> list[Topic]:
    from confluent_kafka import TopicPartition  # noqa: PLC0415
    from confluent_kafka.admin import OffsetSpec  # noqa: PLC0415

    if not any(wanted.values()):
        return [Topic(name, {}) for name in wanted]

    def ends(spec: OffsetSpec) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(name, partition): spec for name, numbers in wanted.items() for partition in numbers}
        futures = client.list_offsets(asked, request_timeout=clients.ANSWER_SECONDS)
        return {
            (place.topic, place.partition): _settle(future, bootstrap, f"cannot read topic {place.topic}").offset
            for place, future in futures.items()
        }

    beginnings, next_offsets = ends(OffsetSpec.earliest()), ends(OffsetSpec.latest())
    return [
        Topic(name, {number: (beginnings[name, number], next_offsets[name, number]) for number in numbers})
        for name, numbers in wanted.items()
    ]


def _settle(future: Future[Any], bootstrap: str, problem: str, *, ignore: str | None = None) -> Any:
    """A broker's answer to one request, or its refusal as an error for the user."""
    from confluent_kafka import KafkaException  # noqa: PLC0415

    try:
        return future.result(timeout=30)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        if error.name() == ignore:
            return None
        raise ServiceUnreachable(
            "kafka-refused", problem, evidence={"broker": bootstrap, "reason": error.str()}
        ) from None


def _require_legal(name: str) -> None:
    if not LEGAL_NAME.fullmatch(name) or name in {".", ".."}:
        raise UsageProblem(
            "bad-topic",
            f"{name!r} cannot be a topic's name",
            evidence={"allowed": "letters, digits, '.', '_' and '-', at most 249 of them"},
            remedy="headwater topics create visits",
        )
