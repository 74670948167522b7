"""Input records, made from a seed: what is sent, and what a job should make of it. Knows no Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, Any]

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LATE = timedelta(hours=6)
BROWSERS = ("Firefox", "Chrome", "Safari", "Edge", "Lynx", "Ćuk", 'q"uote', None)
STATUSES = ("CLOSED", "COMPLETE", "PENDING", "PAYMENT_REVIEW", "ON HOLD", None)


@dataclass(frozen=True)
class Record:
    """``fields`` is what the job sees; None for a record that cannot be decoded."""

    data: bytes | None
    fields: Fields | None


@dataclass(frozen=True)
class Burst:
    """A number of records at one point of the story's own clock (``minute``), some of them late or malformed."""

    seed: int
    minute: int
    count: int
    late: float = 0.0
    malformed: float = 0.0

    def records(self, kind: str, *, tombstones: bool) -> list[Record]:
        """The same burst gives the same records, always. Only Kafka has records without any value: ``tombstones``."""
        dice = random.Random(f"{self.seed} {kind}")
        now = START + timedelta(minutes=self.minute)
        return [self._record(dice, MAKERS[kind], now, tombstones=tombstones) for _ in range(self.count)]

    def _record(self, dice: random.Random, make: Callable[..., Fields], now: datetime, *, tombstones: bool) -> Record:
        if dice.random() < self.malformed:
            return Record(_malformed(dice, make(dice, now), tombstones=tombstones), None)
        at = now - timedelta(seconds=dice.randrange(600))
        if dice.random() < self.late:
            at -= LATE + timedelta(minutes=dice.randrange(600))
        fields = make(dice, at)
        return Record(json.dumps(fields, ensure_ascii=dice.random() < 0.5).encode(), fields)


def _visit(dice: random.Random, at: datetime) -> Fields:
    who = dice.randrange(1000)
    return {"userId": who, "page": f"/{who % 7}", "eventTime": _iso(at), "browser": dice.choice(BROWSERS)}


def _event(dice: random.Random, at: datetime) -> Fields:
    # Few users and whole minutes, so that many events come twice.
    return {"User": f"u{dice.randrange(4)}", "event_time": _iso(at.replace(second=0, microsecond=0))}


def _purchase(dice: random.Random, at: datetime) -> Fields:
    return {"user": f"user {dice.randrange(25)}", "shopping": dice.randrange(1, 500), "date": f"{at:%d-%m-%Y}"}


def _order(dice: random.Random, at: datetime) -> Fields:  # noqa: ARG001  orders have no time
    return {"order_id": dice.randrange(100_000), "order_status": dice.choice(STATUSES)}


MAKERS: dict[str, Callable[[random.Random, datetime], Fields]] = {
    "visit": _visit,
    "event": _event,
    "purchase": _purchase,
    "order": _order,
}
WRONG_TYPE = {"userId": "many", "event_time": "yesterday", "shopping": "a lot", "order_id": [1, 2]}


def _malformed(dice: random.Random, fields: Fields, *, tombstones: bool) -> bytes | None:
    text = json.dumps(fields)
    wrong = {name: WRONG_TYPE.get(name, value) for name, value in fields.items()}
    kinds: list[bytes | None] = [
        b"not json at all",
        b"",
        b"null",
        b"\xff\xfe broken \xc3",
        text[: dice.randrange(1, len(text) - 1)].encode(),
        (text + text).encode(),
        json.dumps(wrong).encode(),
        json.dumps([fields]).encode()[1:],
    ]
    return dice.choice([*kinds, None] if tombstones else kinds)


def _iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def milliseconds(moment: str | datetime) -> int:
    """A time in any of the ways in which it comes back, as epoch milliseconds."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
