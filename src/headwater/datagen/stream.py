"""A stream of records with its faults: pure, the same bytes for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.datagen.shapes import SHAPES, Shape

# The first event time when the clock does not give it: 2024-10-06T10:00:00Z.
FIXED_START_MS = 1_728_208_800_000
# Fixed, because the faults are placed block by block: another size would give other bytes for the same seed.
BLOCK = 1000
# A duplicate is a copy of one of so many records before it.
DUPLICATE_REACH = 200


@dataclass(frozen=True)
class Shares:
    """Which part of all records is faulty, each between 0 and 1. No record has two faults."""

    late: float = 0.0
    duplicates: float = 0.0
    malformed: float = 0.0

    def __post_init__(self) -> None:
        if min(self.late, self.duplicates, self.malformed) < 0 or self.late + self.duplicates + self.malformed > 1:
            raise ValueError(f"shares are between 0 and 1 and at most 1 together: {self}")


@dataclass(frozen=True)
class Block:
    """Records in the order in which they are to be sent, and the places of those with a fault."""

    records: list[bytes]
    late: list[int]
    duplicates: list[int]
    malformed: list[int]


class RecordStream:
    """Makes records of one shape, block by block. After any number of records the shares are kept to within one."""

    def __init__(self, shape: str, *, seed: int, shares: Shares | None = None, format: str = "json") -> None:
        # One source of chance for each purpose: asking for faults must not change the records around them.
        self._faults = random.Random(f"faults {seed}")  # noqa: S311 - test data, to be repeated at will
        self._shape: Shape = SHAPES[shape](random.Random(f"{shape} {seed}"))  # noqa: S311
        self._shares = shares or Shares()
        self._format = format
        self._made = 0
        self._faulty = {"late": 0, "duplicates": 0, "malformed": 0}
        self._recent: list[bytes] = []

    @property
    def event_step_ms(self) -> float:
        return self._shape.event_step_ms

    def block(self, times_ms: Sequence[int]) -> Block:
        """One record for each event time."""
        late, duplicates, malformed = self._choose(len(times_ms))
        times = list(times_ms)
        nearest, farthest = self._shape.late_by_ms
        for place in late:
            times[place] -= self._faults.randrange(nearest, farthest)
        rows = self._shape.rows(times)
        records = self._encode(rows)
        for place in malformed:
            records[place] = self._spoil(rows[place])
        spoiled = {*malformed, *late}
        for place in sorted(duplicates):
            records[place] = self._earlier(records, place, spoiled)
        sound = [record for place, record in enumerate(records) if place not in spoiled]
        self._recent = (self._recent + sound)[-DUPLICATE_REACH:]
        return Block(records, late, duplicates, malformed)

    def _choose(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Places of the faults in the next block, so that each share of all records so far is kept exactly."""
        self._made += count
        due = {}
        for fault, so_far in self._faulty.items():
            due[fault] = min(count, int(self._made * getattr(self._shares, fault) + 1e-9) - so_far)
        if not self._recent and due["duplicates"] == count:
            due["duplicates"] -= 1
        wanted = min(count, sum(due.values()))
        if not wanted:
            return [], [], []
        places = self._faults.sample(range(count), wanted)
        late, duplicates = due["late"], due["duplicates"]
        chosen = (places[:late], places[late : late + duplicates], places[late + duplicates :])
        for fault, where in zip(self._faulty, chosen, strict=True):
            self._faulty[fault] += len(where)
        return chosen

    def _earlier(self, records: list[bytes], place: int, spoiled: set[int]) -> bytes:
        """A sound record from before a place; at the very start of a stream, the first sound one after it."""
        known = len(self._recent)
        back = self._faults.randrange(1, DUPLICATE_REACH)
        for other in range(max(-known, place - back), place):
            if other < 0:
                return self._recent[other]
            if other not in spoiled:
                return records[other]
        after = range(place + 1, len(records))
        return next((records[other] for other in after if other not in spoiled), records[place])

    def _encode(self, rows: list[tuple[object, ...]]) -> list[bytes]:
        if self._format == "csv":
            return [",".join(map(str, row)).encode() for row in rows]
        line = self._shape.line
        return [line(row).encode() for row in rows]

    def _spoil(self, row: tuple[object, ...]) -> bytes:
        kind = self._faults.randrange(3)
        if kind == 0:
            whole = self._encode([row])[0]
            # A CSV line that is cut within its last field may still pass for a whole one.
            end = whole.rindex(b",") if self._format == "csv" else len(whole) - 1
            return whole[: self._faults.randrange(end // 2, end)]
        if kind == 1:
            return self._encode([self._shape.wrong_type(row)])[0]
        return b"#!garbage " + self._faults.randbytes(self._faults.randrange(4, 12)).hex().encode()


def stepped_blocks(stream: RecordStream, *, start_ms: int, count: int | None) -> Iterator[Block]:
    """Blocks whose event time starts at an instant and goes on by the shape's step."""
    made = 0
    while count is None or made < count:
        size = BLOCK if count is None else min(BLOCK, count - made)
        step = stream.event_step_ms
        yield stream.block([start_ms + int((made + number) * step) for number in range(size)])
        made += size
