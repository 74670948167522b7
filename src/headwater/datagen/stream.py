"""A stream of records with faults. The same seed generates the same bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.datagen.shapes import SHAPES, Shape

# The first event time of a stream that does not follow the clock: 2024-10-06T10:00:00Z.
FIXED_START_MS = 1_728_208_800_000
# Fixed, because faults are placed block by block: another size would generate other bytes for the same seed.
BLOCK_SIZE = 1000
# A duplicate is a copy of one of this many previous records.
DUPLICATE_REACH = 200


@dataclass(frozen=True)
class Shares:
    """The share of records with each fault, between 0 and 1. No record has two faults."""

    late: float = 0.0
    duplicates: float = 0.0
    malformed: float = 0.0

    def __post_init__(self) -> None:
        if min(self.late, self.duplicates, self.malformed) < 0 or self.late + self.duplicates + self.malformed > 1:
            raise ValueError(f"each share must be between 0 and 1, and their sum at most 1: {self}")


@dataclass(frozen=True)
class Block:
    """Records in sending order, and the indexes of those with a fault."""

    records: list[bytes]
    streams: list[str]
    """The stream of each record."""
    late: list[int]
    duplicates: list[int]
    malformed: list[int]


class RecordStream:
    """Generates records of one shape, block by block. After any block, each share is exact to within two records."""

    def __init__(self, shape: str, *, seed: int, shares: Shares | None = None, format: str = "json") -> None:
        # Separate generators: the faults must not change the records around them.
        self._faults = random.Random(f"faults {seed}")  # noqa: S311 - repeatable test data
        self._shape: Shape = SHAPES[shape](random.Random(f"{shape} {seed}"))  # noqa: S311
        self._shares = shares or Shares()
        self._format = format
        self._generated = 0
        self._faulty = {"late": 0, "duplicates": 0, "malformed": 0}
        self._recent: list[tuple[str, bytes]] = []

    @property
    def event_step_ms(self) -> float:
        return self._shape.event_step_ms

    def block(self, times_ms: Sequence[int]) -> Block:
        """Return one record for each event time."""
        late, duplicates, malformed = self._choose(len(times_ms))
        times = list(times_ms)
        nearest, farthest = self._shape.late_by_ms
        for index in late:
            times[index] -= self._faults.randrange(nearest, farthest)
        rows = self._shape.rows(times)
        streams = [self._shape.stream_of(row) for row in rows]
        records = list(zip(streams, self._encode(rows), strict=True))
        for index in malformed:
            records[index] = (streams[index], self._malformed(rows[index]))
        faulty = {*malformed, *late}
        for index in sorted(duplicates):
            records[index] = self._earlier(records, index, faulty)
        valid = [record for index, record in enumerate(records) if index not in faulty]
        self._recent = (self._recent + valid)[-DUPLICATE_REACH:]
        return Block([value for _, value in records], [name for name, _ in records], late, duplicates, malformed)

    def _choose(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Choose where the next block has faults, so that each share of all records so far is exact."""
        self._generated += count
        due = {}
        for fault, so_far in self._faulty.items():
            due[fault] = min(count, int(self._generated * getattr(self._shares, fault) + 1e-9) - so_far)
        if not self._recent and due["duplicates"] == count:
            due["duplicates"] -= 1
        while sum(due.values()) > count:  # leave out the fault whose share is closest to exact
            surplus = {
                fault: self._faulty[fault] + due[fault] - self._generated * getattr(self._shares, fault)
                for fault in due
                if due[fault]
            }
            due[max(surplus, key=surplus.__getitem__)] -= 1
        faults = sum(due.values())
        if not faults:
            return [], [], []
        indexes = self._faults.sample(range(count), faults)
        late, duplicates = due["late"], due["duplicates"]
        chosen = (indexes[:late], indexes[late : late + duplicates], indexes[late + duplicates :])
        for fault, fault_indexes in zip(self._faulty, chosen, strict=True):
            self._faulty[fault] += len(fault_indexes)
        return chosen

    def _earlier(self, records: list[tuple[str, bytes]], index: int, faulty: set[int]) -> tuple[str, bytes]:
        """Return a valid record from before an index or, at the start of a stream, the first valid one after it."""
        known = len(self._recent)
        back = self._faults.randrange(1, DUPLICATE_REACH)
        for other in range(max(-known, index - back), index):
            if other < 0:
                return self._recent[other]
            if other not in faulty:
                return records[other]
        after = range(index + 1, len(records))
        return next((records[other] for other in after if other not in faulty), records[index])

    def _encode(self, rows: list[tuple[object, ...]]) -> list[bytes]:
        if self._format == "csv":
            csv = self._shape.csv
            return [csv(row).encode() for row in rows]
        line = self._shape.line
        return [line(row).encode() for row in rows]

    def _malformed(self, row: tuple[object, ...]) -> bytes:
        """Return a record that is truncated, has a value of the wrong type, or is garbage."""
        kind = self._faults.randrange(3)
        if kind == 0:
            record = self._encode([row])[0]
            # A CSV line that is truncated within its last field may still be valid.
            end = record.rindex(b",") if self._format == "csv" else len(record) - 1
            return record[: self._faults.randrange(end // 2, end)]
        if kind == 1:
            return self._encode([self._shape.wrong_type(row)])[0]
        return b"#!garbage " + self._faults.randbytes(self._faults.randrange(4, 12)).hex().encode()


def stepped_blocks(stream: RecordStream, *, start_ms: int, count: int | None) -> Iterator[Block]:
    """Yield blocks whose event time starts at ``start_ms`` and advances by the shape's step."""
    generated = 0
    while count is None or generated < count:
        size = BLOCK_SIZE if count is None else min(BLOCK_SIZE, count - generated)
        step = stream.event_step_ms
        yield stream.block([start_ms + int((generated + number) * step) for number in range(size)])
        generated += size
