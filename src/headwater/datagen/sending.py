"""Sending a stream at a steady rate until it ends or is told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from headwater.datagen.stream import BLOCK, Block, RecordStream, stepped_blocks

# Records go out in slices of about this time, so that a slow stream is smooth and a fast one cheap.
SLICE_SECONDS = 0.02


class Target(Protocol):
    """Where records go."""

    def send_values(self, values: Sequence[bytes]) -> None: ...

    def flush(self) -> None: ...


@dataclass
class Tally:
    """What has been sent so far; the time it took is known at the end."""

    records: int = 0
    late: int = 0
    duplicates: int = 0
    malformed: int = 0
    seconds: float = 0.0

    def add(self, block: Block, start: int, end: int) -> None:
        """Count the records of a block from one place to another."""
        self.records += end - start
        self.late += sum(start <= place < end for place in block.late)
        self.duplicates += sum(start <= place < end for place in block.duplicates)
        self.malformed += sum(start <= place < end for place in block.malformed)

    @property
    def rate(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


def send_stream(
    stream: RecordStream,
    target: Target,
    *,
    start_ms: int | None,
    count: int | None = None,
    rate: float | None = None,
    stop: Event | None = None,
    on_progress: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Send ``count`` records (endless without), at ``rate`` a second (as fast as they go without).

    Event time starts at ``start_ms`` and advances by the shape's own step; without it, event time is the clock's.
    """
    stop = stop or Event()
    tally = Tally()
    began = time.monotonic()
    blocks = (
        stepped_blocks(stream, start_ms=start_ms, count=count)
        if start_ms is not None
        else _clocked_blocks(stream, count=count, rate=rate, began=began)
    )
    slice_size = BLOCK if rate is None else max(1, int(rate * SLICE_SECONDS))
    for block in blocks:
        for at in range(0, len(block.records), slice_size):
            if rate is not None:
                stop.wait(began + tally.records / rate - time.monotonic())
            if stop.is_set():
                break
            values = block.records[at : at + slice_size]
            target.send_values(values)
            tally.add(block, at, at + len(values))
            on_progress(tally)
        if stop.is_set():
            break
    target.flush()
    tally.seconds = time.monotonic() - began
    return tally


def _clocked_blocks(stream: RecordStream, *, count: int | None, rate: float | None, began: float) -> Iterator[Block]:
    """Blocks no longer than a slice, each with the time at which it is due."""
    clock_ms = time.time() * 1000 - (time.monotonic() - began) * 1000
    made = 0
    while count is None or made < count:
        size = BLOCK if rate is None else max(1, int(rate * SLICE_SECONDS))
        if count is not None:
            size = min(size, count - made)
        if rate is None:
            times = [time.time_ns() // 1_000_000] * size
        else:
            times = [int(clock_ms + (made + number) / rate * 1000) for number in range(size)]
        yield stream.block(times)
        made += size
