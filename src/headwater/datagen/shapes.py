"""The shapes of records. The records of a shape depend only on its seed and on the event times.

A shape walks through all combinations of its fields in a scattered order before it repeats one. Two equal records are
therefore requested duplicates, never coincidence.
"""

from __future__ import annotations

import heapq
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import ClassVar

from headwater.core.times import EPOCH
from headwater.datagen.products import PRODUCTS

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class Walk:
    """Every number below ``size`` in a scattered order, repeated endlessly."""

    def __init__(self, size: int, rng: random.Random) -> None:
        self.size = size
        self._at = rng.randrange(size)
        # About the golden section of the size, so that consecutive numbers are far apart.
        stride = int(size * 0.618) + rng.randrange(max(1, size // 50))
        while math.gcd(stride, size) != 1:
            stride += 1
        self._stride = stride

    def take(self, count: int) -> list[int]:
        """Return the next numbers."""
        at, stride, size = self._at, self._stride, self.size
        self._at = (at + count * stride) % size
        return [(at + number * stride) % size for number in range(count)]


class Shape(ABC):
    """A shape of records. ``rows`` generates one row for each event time, in epoch milliseconds."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    template: ClassVar[str]
    event_step_ms: ClassVar[float]
    """The event time between two records if event time does not follow the clock."""
    late_by_ms: ClassVar[tuple[int, int]]
    """How late the late records are: more than the watermark delay of the jobs that read this shape."""
    combinations: ClassVar[int]
    """The number of combinations of field values, without the event time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._walk = Walk(self.combinations, rng)

    @classmethod
    def streams(cls) -> dict[str, tuple[str, ...]]:
        """Return the columns of each stream that the shape generates: most generate one, with the name of the shape."""
        return {cls.name: cls.columns}

    @abstractmethod
    def rows(self, times_ms: Sequence[int]) -> list[tuple[object, ...]]:
        """Return the values of ``columns`` for each event time."""

    def stream_of(self, row: tuple[object, ...]) -> str:  # noqa: ARG002  shapes of several streams look into the row
        """Return the stream that a row belongs to."""
        return self.name

    def line(self, row: tuple[object, ...]) -> str:
        """Return the row as a JSON record."""
        return self.template % row

    def csv(self, row: tuple[object, ...]) -> str:
        """Return the row as a line of CSV."""
        return ",".join(map(str, row))

    @abstractmethod
    def wrong_type(self, row: tuple[object, ...]) -> tuple[object, ...]:
        """Return the row with one value that its column cannot hold."""


class Visits(Shape):
    """``{"userId": 1, "page": "index.html", "eventTime": "2024-10-06T10:00:00.000Z", "browser": "Firefox"}``"""

    name = "visits"
    columns = ("userId", "page", "eventTime", "browser")
    template = '{"userId": %s, "page": "%s", "eventTime": "%s", "browser": "%s"}'
    event_step_ms = 10
    late_by_ms = (2 * HOUR_MS, 6 * HOUR_MS)
    USERS = 10_000
    PAGES = ("index.html", "search.html", "product.html", "cart.html", "checkout.html", "help.html", "about.html")
    # One entry per percent of the browser's share.
    BROWSERS = ("Chrome",) * 62 + ("Safari",) * 21 + ("Edge",) * 8 + ("Firefox",) * 7 + ("Opera",) * 2
    combinations = USERS * len(PAGES)

    def rows(self, times_ms: Sequence[int]) -> list[tuple[object, ...]]:
        users, pages, browsers = self.USERS, self.PAGES, self.BROWSERS
        noise = self.rng.randbytes(len(times_ms))
        return [
            (at % users + 1, pages[at // users], iso(time_ms), browsers[byte * 100 >> 8])
            for at, time_ms, byte in zip(self._walk.take(len(times_ms)), times_ms, noise, strict=True)
        ]

    def wrong_type(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return ("{}", *row[1:])


class Purchases(Shape):
    """``{'user': 'Sankar', 'shopping': 200, 'date': '20-04-2020'}``"""

    name = "purchases"
    columns = ("user", "shopping", "date")
    template = "{'user': '%s', 'shopping': %s, 'date': '%s'}"
    event_step_ms = 10 * MINUTE_MS
    late_by_ms = (15 * DAY_MS, 45 * DAY_MS)
    USERS = (
        *("Sankar", "Jade", "Kun", "Amara", "Bela", "Chidi", "Dora", "Emre", "Freya", "Goran", "Hana", "Idris"),
        *("Jorge", "Kaya", "Lena", "Mbali", "Nuria", "Olek", "Priya", "Quentin", "Rosa", "Sven", "Tomoko", "Uma"),
        *("Viktor", "Wanjiru", "Ximena", "Yusuf", "Zoe", "Anouk", "Bruno", "Celia", "Dmitri", "Elif", "Farah"),
    )
    MAX_AMOUNT = 20_000
    combinations = len(USERS) * MAX_AMOUNT

    def rows(self, times_ms: Sequence[int]) -> list[tuple[object, ...]]:
        users = self.USERS
        return [
            (users[at % len(users)], at // len(users) + 1, day(time_ms))
            for at, time_ms in zip(self._walk.take(len(times_ms)), times_ms, strict=True)
        ]

    def wrong_type(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return (row[0], "{}", row[2])


class Trades(Shape):
    """``{'id': 'apple', 'amount': 10, 'type': 'buy', 'time': '20-04-2020-10-10'}``"""

    name = "trades"
    columns = ("id", "amount", "type", "time")
    template = "{'id': '%s', 'amount': %s, 'type': '%s', 'time': '%s'}"
    event_step_ms = 500
    late_by_ms = (2 * HOUR_MS, 6 * HOUR_MS)
    IDS = ("apple", "ibm", "dell", "shell", "asus", "goggle", "nokia", "tata", "sony", "bayer", "volvo", "lego")
    TYPES = ("buy", "sell")
    MAX_AMOUNT = 50_000
    combinations = len(IDS) * 2 * MAX_AMOUNT

    def rows(self, times_ms: Sequence[int]) -> list[tuple[object, ...]]:
        ids, types = self.IDS, self.TYPES
        kinds = len(ids) * 2
        return [
            (ids[at % kinds // 2], at // kinds + 1, types[at & 1], minute(time_ms))
            for at, time_ms in zip(self._walk.take(len(times_ms)), times_ms, strict=True)
        ]

    def wrong_type(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return (row[0], "{}", *row[2:])


class Sales(Shape):
    """``{"store": "s1", "counter": 1, "amount": 1200, "sold_at": "2024-05-01T10:02:00.000Z"}``"""

    name = "sales"
    columns = ("store", "counter", "amount", "sold_at")
    template = '{"store": "%s", "counter": %s, "amount": %s, "sold_at": "%s"}'
    event_step_ms = 100
    late_by_ms = (6 * HOUR_MS, 24 * HOUR_MS)
    STORES = 20
    COUNTERS = 500
    combinations = STORES * COUNTERS

    def rows(self, times_ms: Sequence[int]) -> list[tuple[object, ...]]:
        counters, stores = self.COUNTERS, self.STORES
        noise = memoryview(self.rng.randbytes(2 * len(times_ms))).cast("H")
        # A counter always belongs to the same store.
        return [
            (f"s{at % counters % stores + 1}", at % counters + 1, (number + 1) * 10, iso(time_ms))
            for at, time_ms, number in zip(self._walk.take(len(times_ms)), times_ms, noise, strict=True)
        ]

    def wrong_type(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return (*row[:2], "{}", row[3])


class Items(Shape):
    """``{"store": "s1", "product": "p17", "quantity": 2, "sold_at": "2024-05-01T10:02:00.000Z"}``"""

    name = "items"
    columns = ("store", "product", "quantity", "sold_at")
    template = '{"store": "%s", "product": "%s", "quantity": %s, "sold_at": "%s"}'
    event_step_ms = 100
    late_by_ms = (6 * HOUR_MS, 24 * HOUR_MS)
    STORES = 20
    MAX_QUANTITY = 5
    combinations = STORES * PRODUCTS * MAX_QUANTITY

    def rows(self, times_ms: Sequence[int]) -> list[tuple[object, ...]]:
        return [
            (
                f"s{at % self.STORES + 1}",
                f"p{at // self.STORES % PRODUCTS + 1}",
                at // (self.STORES * PRODUCTS) + 1,
                iso(time_ms),
            )
            for at, time_ms in zip(self._walk.take(len(times_ms)), times_ms, strict=True)
        ]

    def wrong_type(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return (*row[:2], "{}", row[3])


class Sessions(Shape):
    """``{"user": "u17", "event_time": "2024-03-01T10:00:00.000Z"}``, from users who come, stay for a while and return later."""

    name = "sessions"
    columns = ("user", "event_time")
    template = '{"user": "%s", "event_time": "%s"}'
    event_step_ms = 20
    late_by_ms = (2 * HOUR_MS, 6 * HOUR_MS)
    USERS = 20_000
    ACTIVE = 1024
    combinations = USERS

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._active = self._walk.take(self.ACTIVE)
        self._slots = Walk(self.ACTIVE, rng)

    def rows(self, times_ms: Sequence[int]) -> list[tuple[object, ...]]:
        noise = self.rng.randbytes(len(times_ms))
        active = self._active
        rows: list[tuple[object, ...]] = []
        for slot, time_ms, byte in zip(self._slots.take(len(times_ms)), times_ms, noise, strict=True):
            if byte < 4:
                active[slot] = self._walk.take(1)[0]
            rows.append((f"u{active[slot]}", iso(time_ms)))
        return rows

    def wrong_type(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return (row[0], "some day")


class ImpressionsAndClicks(Shape):
    """Two streams: impressions of ads, and clicks on some of them.

    ``{"impression": "i7", "ad": "shoes", "shown_at": "2024-10-06T10:00:00.000Z"}``
    ``{"impression": "i7", "clicked_at": "2024-10-06T10:04:10.000Z"}``

    About a third of the impressions are clicked, most within minutes, and one click in twenty after more than an hour.
    A row starts with the name of its stream. A click is generated once its time has come, instead of an impression.
    """

    name = "impressions,clicks"
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "impressions": ("impression", "ad", "shown_at"),
        "clicks": ("impression", "clicked_at"),
    }
    TEMPLATES: ClassVar[dict[str, str]] = {
        "impressions": '{"impression": "%s", "ad": "%s", "shown_at": "%s"}',
        "clicks": '{"impression": "%s", "clicked_at": "%s"}',
    }
    event_step_ms = 1000
    late_by_ms = (3 * HOUR_MS, 9 * HOUR_MS)
    ADS = ("shoes", "tea", "bicycles", "lamps", "books", "tents", "chairs", "skis", "kites", "clocks", "cameras")
    combinations = len(ADS)
    CLICKED = 0.33
    TOO_LATE = 0.05

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._shown = 0
        self._newest_ms = 0
        self._clicks: list[tuple[int, str]] = []

    @classmethod
    def streams(cls) -> dict[str, tuple[str, ...]]:
        return cls.COLUMNS

    def rows(self, times_ms: Sequence[int]) -> list[tuple[object, ...]]:
        return [self._row(time_ms) for time_ms in times_ms]

    def _row(self, time_ms: int) -> tuple[object, ...]:
        in_order = time_ms >= self._newest_ms
        self._newest_ms = max(self._newest_ms, time_ms)
        if in_order and self._clicks and self._clicks[0][0] <= time_ms:
            clicked_ms, impression = heapq.heappop(self._clicks)
            return "clicks", impression, iso(clicked_ms)
        self._shown += 1
        impression, chance, delay = f"i{self._shown}", self.rng.random(), self.rng.random()
        if in_order and chance < self.CLICKED:
            heapq.heappush(self._clicks, (time_ms + self._delay_ms(delay), impression))
        return "impressions", impression, self.ADS[self._walk.take(1)[0]], iso(time_ms)

    def _delay_ms(self, chance: float) -> int:
        """Return how long after its impression a click follows, for a chance between 0 and 1."""
        if chance < self.TOO_LATE:
            return HOUR_MS + 1 + int(chance / self.TOO_LATE * HOUR_MS)
        return 1000 + int(((chance - self.TOO_LATE) / (1 - self.TOO_LATE)) ** 3 * (HOUR_MS - 1000))

    def stream_of(self, row: tuple[object, ...]) -> str:
        return str(row[0])

    def line(self, row: tuple[object, ...]) -> str:
        return self.TEMPLATES[str(row[0])] % row[1:]

    def csv(self, row: tuple[object, ...]) -> str:
        return super().csv(row[1:])

    def wrong_type(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return (*row[:-1], "some day")


SHAPES: dict[str, type[Shape]] = {
    shape.name: shape for shape in (Visits, Purchases, Trades, Sales, Items, Sessions, ImpressionsAndClicks)
}

_MILLISECONDS = tuple(f".{number:03d}Z" for number in range(1000))


def iso(epoch_ms: int) -> str:
    seconds, milliseconds = divmod(epoch_ms, 1000)
    return _second(seconds) + _MILLISECONDS[milliseconds]


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def minute(epoch_ms: int) -> str:
    return _minute(epoch_ms // MINUTE_MS)


@lru_cache(maxsize=4096)
def _minute(minutes: int) -> str:
    return (EPOCH + timedelta(minutes=minutes)).strftime("%d-%m-%Y-%H-%M")


def day(epoch_ms: int) -> str:
    return _day(epoch_ms // DAY_MS)


@lru_cache(maxsize=4096)
def _day(days: int) -> str:
    return (EPOCH + timedelta(days=days)).strftime("%d-%m-%Y")
