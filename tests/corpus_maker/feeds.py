"""The input rows of the corpus: few, seeded, with late and repeated rows, nulls and unusual names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from .case import Row, Stream

START = datetime(2024, 5, 1, 10, tzinfo=UTC)
USERS = ("ann", "bob", "çelik", "", "a name that is longer than sixteen bytes", None)
KINDS = ("view", "buy", "sell")

EVENT_SCHEMA = "user STRING, kind STRING, amount BIGINT, at TIMESTAMP"
SHOWN_SCHEMA = "ad BIGINT, site STRING, shown_at TIMESTAMP"
CLICKED_SCHEMA = "ad BIGINT, user STRING, clicked_at TIMESTAMP"


def events(feeds: int = 5, rows: int = 9) -> Stream:
    """Return events whose time advances with each feed, far enough before the last for most state to expire.

    One in six is late, one in six repeats an earlier one.
    """
    random = Random(20240501)
    made: list[tuple[Row, ...]] = []
    earlier: list[Row] = []
    for feed in range(feeds):
        now = START + timedelta(minutes=8 * feed + (25 if feed >= feeds - 2 else 0))
        batch: list[Row] = []
        for _ in range(rows):
            dice = random.randrange(6)
            if dice == 0 and earlier:
                batch.append(random.choice(earlier))
                continue
            behind = timedelta(minutes=random.randrange(10, 25)) if dice == 1 else timedelta()
            at = now + timedelta(milliseconds=random.randrange(8 * 60_000)) - behind
            row = {
                "user": random.choice(USERS),
                "kind": random.choice(KINDS),
                "amount": random.randrange(-50, 1000),
                "at": _iso(at),
            }
            batch.append(row)
            earlier.append(row)
        made.append(tuple(batch))
    return Stream(EVENT_SCHEMA, tuple(made))


def shown_and_clicked(feeds: int = 5) -> dict[str, Stream]:
    """Return ads that were shown, and clicks on most of them within ten minutes."""
    random = Random(20240502)
    shown: list[tuple[Row, ...]] = []
    clicked: list[tuple[Row, ...]] = []
    waiting: list[tuple[int, datetime]] = []
    for feed in range(feeds):
        now = START + timedelta(minutes=8 * feed)
        ads = [(feed * 5 + nth, now + timedelta(seconds=random.randrange(480))) for nth in range(5)]
        shown.append(
            tuple({"ad": ad % 7, "site": random.choice(("news", "maps")), "shown_at": _iso(at)} for ad, at in ads)
        )
        waiting += ads
        random.shuffle(waiting)
        picked, waiting = waiting[:4], waiting[4:]
        clicked.append(
            tuple(
                {
                    "ad": ad % 7,
                    "user": random.choice(USERS),
                    "clicked_at": _iso(at + timedelta(seconds=random.randrange(900))),
                }
                for ad, at in picked
            )
        )
    return {"shown": Stream(SHOWN_SCHEMA, tuple(shown)), "clicked": Stream(CLICKED_SCHEMA, tuple(clicked))}


def _iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
