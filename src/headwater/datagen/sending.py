"""Send a stream of records at a steady rate until it ends or is stopped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from headwater.datagen.stream import BLOCK_SIZE, Block, RecordStream, stepped_blocks

# Records are sent in slices of about this length: a slow stream is then smooth, and a fast one cheap.
SLICE_SECONDS = 0.02


class Target(Protocol):
    """A target for records, such as a topic or a folder."""

    def send_values(self, values: Sequence[bytes]) -> None: ...

    def flush(self) -> None: ...


@dataclass
class Tally:
    """The counts of what was sent so far. ``seconds`` is set at the end."""

    records: int = 0
    late: int = 0
    duplicates: int = 0
    malformed: int = 0
    seconds: float = 0.0
    by_stream: Counter[str] = field(default_factory=Counter)

    def add(self, block: Block, start: int, end: int) -> None:
        """Count the records of a block from index ``start`` to before ``end``."""
        self.records += end - start
        self.by_stream.update(block.streams[start:end])
        self.late += sum(start <= index < end for index in block.late)
        self.duplicates += sum(start <= index < end for index in block.duplicates)
        self.malformed += sum(start <= index < end for index in block.malformed)

    @property
    def rate(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


def send_stream(
    stream: RecordStream,
    targets: Mapping[str, Target],
    *,
    start_ms: int | None,
    count: int | None = None,
    rate: float | None = None,
    stop: Event | None = None,
    on_progress: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Send ``count`` records, or an endless stream, at ``rate`` per second, or as fast as possible.

    ``targets`` has the target of each stream of the shape, by name.

    Event time starts at ``start_ms`` and advances by the shape's own step. Without it, event time is the current time.
    """
    stop = stop or Event()
    tally = Tally()
    began = time.monotonic()
    blocks = (
        stepped_blocks(stream, start_ms=start_ms, count=count)
        if start_ms is not None
        else _clocked_blocks(stream, count=count, rate=rate, began=began)
    )
    slice_size = BLOCK_SIZE if rate is None else max(1, int(rate * SLICE_SECONDS))
    for block in blocks:
        for at in range(0, len(block.records), slice_size):
            if rate is not None:
                stop.wait(began + tally.records / rate - time.monotonic())
            if stop.is_set():
                break
            end = min(at + slice_size, len(block.records))
            _send_slice(block, at, end, targets)
            tally.add(block, at, end)
            on_progress(tally)
        if stop.is_set():
            break
    for target in targets.values():
        target.flush()
    tally.seconds = time.monotonic() - began
    return tally


def _send_slice(block: Block, start: int, end: int, targets: Mapping[str, Target]) -> None:
    values, streams = block.records[start:end], block.streams[start:end]
    for name, target in targets.items():
        own = values if len(targets) == 1 else [one for one, of in zip(values, streams, strict=True) if of == name]
        if own:
            target.send_values(own)


def _clocked_blocks(stream: RecordStream, *, count: int | None, rate: float | None, began: float) -> Iterator[Block]:
    """Yield blocks no longer than a slice, whose event times are the times at which they are due."""
    clock_ms = time.time() * 1000 - (time.monotonic() - began) * 1000
    generated = 0
    while count is None or generated < count:
        size = BLOCK_SIZE if rate is None else max(1, int(rate * SLICE_SECONDS))
        if count is not None:
            size = min(size, count - generated)
        if rate is None:
            times = [time.time_ns() // 1_000_000] * size
        else:
            times = [int(clock_ms + (generated + number) / rate * 1000) for number in range(size)]
        yield stream.block(times)
        generated += size
