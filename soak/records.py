"""Input records generated from a seed: the bytes that are sent, and the fields that a job must see."""

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
ADS = ("shoes", "tea", "Süßes", None)
IMPRESSIONS = 90  # few, so that most are shown several times, and some of them are clicked
PRODUCTS = 12
STATUSES = ("CLOSED", "COMPLETE", "PENDING", "PAYMENT_REVIEW", "ON HOLD", None)


@dataclass(frozen=True)
class Record:
    """``fields`` is what the job must see, or None if the record cannot be decoded."""

    data: bytes | None
    fields: Fields | None
    source: str = ""


@dataclass(frozen=True)
class Burst:
    """A number of records at one minute of the story's event time, some of them late or malformed."""

    seed: int
    minute: int
    count: int
    late: float = 0.0
    malformed: float = 0.0

    def records(self, kind: str, *, tombstones: bool, source: str = "") -> list[Record]:
        """Generate the records, always the same for the same burst; ``tombstones`` allows records without a value."""
        rng = random.Random(f"{self.seed} {kind}{source}")
        now = START + timedelta(minutes=self.minute)
        made = [self._record(rng, GENERATORS[kind], now, tombstones=tombstones) for _ in range(self.count)]
        return [Record(*one, source) for one in made]

    def _record(
        self, rng: random.Random, make: Callable[..., Fields], now: datetime, *, tombstones: bool
    ) -> tuple[bytes | None, Fields | None]:
        if rng.random() < self.malformed:
            return _malformed(rng, make(rng, now), tombstones=tombstones), None
        at = now - timedelta(seconds=rng.randrange(600))
        if rng.random() < self.late:
            at -= LATE + timedelta(minutes=rng.randrange(600))
        fields = make(rng, at)
        return json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode(), fields


def _visit(rng: random.Random, at: datetime) -> Fields:
    who = rng.randrange(1000)
    return {"userId": who, "page": f"/{who % 7}", "eventTime": _iso(at), "browser": rng.choice(BROWSERS)}


def _event(rng: random.Random, at: datetime) -> Fields:
    # Few users and whole minutes, so that there are many duplicates.
    return {"User": f"u{rng.randrange(4)}", "event_time": _iso(at.replace(second=0, microsecond=0))}


def _purchase(rng: random.Random, at: datetime) -> Fields:
    return {"user": f"user {rng.randrange(25)}", "shopping": rng.randrange(1, 500), "date": f"{at:%d-%m-%Y}"}


def _order(rng: random.Random, at: datetime) -> Fields:  # noqa: ARG001  orders have no time
    return {"order_id": rng.randrange(100_000), "order_status": rng.choice(STATUSES)}


def _impression_id(rng: random.Random) -> str | None:
    return f"i{rng.randrange(IMPRESSIONS)}" if rng.random() > 0.03 else None


def _impression(rng: random.Random, at: datetime) -> Fields:
    return {"impression": _impression_id(rng), "ad": rng.choice(ADS), "shown_at": _iso(at)}


def _click(rng: random.Random, at: datetime) -> Fields:
    # Most clicks follow within minutes; some come too late to count.
    after = timedelta(seconds=rng.randrange(5400 if rng.random() < 0.1 else 300))
    return {"impression": _impression_id(rng), "clicked_at": _iso(at + after)}


def _item(rng: random.Random, at: datetime) -> Fields:
    product = f"p{rng.randrange(PRODUCTS)}" if rng.random() > 0.05 else None
    return {"store": f"s{rng.randrange(3)}", "product": product, "quantity": rng.randrange(1, 9), "sold_at": _iso(at)}


GENERATORS: dict[str, Callable[[random.Random, datetime], Fields]] = {
    "visit": _visit,
    "event": _event,
    "purchase": _purchase,
    "order": _order,
    "impression": _impression,
    "click": _click,
    "item": _item,
}
WRONG_TYPE = {
    "userId": "many",
    "event_time": "yesterday",
    "shopping": "a lot",
    "order_id": [1, 2],
    "shown_at": "at noon",
    "clicked_at": {"hour": 9},
    "quantity": "some",
}


def _malformed(rng: random.Random, fields: Fields, *, tombstones: bool) -> bytes | None:
    text = json.dumps(fields)
    wrong = {name: WRONG_TYPE.get(name, value) for name, value in fields.items()}
    kinds: list[bytes | None] = [
        b"not json at all",
        b"",
        b"null",
        b"\xff\xfe broken \xc3",
        text[: rng.randrange(1, len(text) - 1)].encode(),
        (text + text).encode(),
        json.dumps(wrong).encode(),
        json.dumps([fields]).encode()[1:],
    ]
    return rng.choice([*kinds, None] if tombstones else kinds)


def _iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def milliseconds(moment: str | datetime) -> int:
    """Convert a time, as a string or a datetime with or without a time zone, to epoch milliseconds."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
