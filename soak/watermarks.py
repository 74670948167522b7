"""The watermark of each batch, computed from the records and followed where the checkpoint has to decide.

A query with several sources takes the watermark of the slowest one. Spark records only the result: a query that starts
again has forgotten how far each source had come, and its watermark stays until all of them have delivered a record. Where
the last start was is not in the checkpoint, so several watermarks can be right; the recorded one must be one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from soak.records import Fields


class Arrival(NamedTuple):
    """A decoded record of a batch, with its place and the name of its source."""

    place: Any
    fields: Fields
    source: str = ""


class BatchInput(NamedTuple):
    """The decodable records of a batch and its recorded watermark; ``carried`` marks a batch that a repartition added.

    Without a recorded watermark, all batches belong to one run of the query. ``may_be_skipped`` marks a batch that a kill
    left unfinished: if its rows were in the sink already, Spark did not read it again, and learned no times from it.
    """

    batch_id: int
    records: tuple[Arrival, ...]
    carried: bool = False
    recorded_ms: int | None = None
    may_be_skipped: bool = False


class Watermark(NamedTuple):
    """The watermarks of a batch: it drops late records by the watermark of the batch before, and evicts by its own."""

    drops_ms: int
    evicts_ms: int


def follow_watermarks(
    batches: Sequence[BatchInput], sources: Sequence[str], time_ms: Callable[[Arrival], int | None], delay_ms: int
) -> list[Watermark]:
    """Return the watermarks of all batches. ``time_ms`` returns None for a record that does not count."""
    found: list[Watermark] = []
    newest: list[dict[str, int]] = []
    before_ms = 0
    for number, batch in enumerate(batches):
        possible = {before_ms} if batch.carried else _possible_watermarks(batches[:number], newest, before_ms, delay_ms)
        if number and batches[number - 1].may_be_skipped:
            possible |= {before_ms}
        evicts_ms = batch.recorded_ms if batch.recorded_ms in possible else max(possible)
        found.append(Watermark(before_ms, evicts_ms))
        newest.append(_newest_times(batch, sources, time_ms))
        before_ms = evicts_ms
    return found


def _newest_times(
    batch: BatchInput, sources: Sequence[str], time_ms: Callable[[Arrival], int | None]
) -> dict[str, int]:
    newest = dict.fromkeys(sources, 0)
    for record in batch.records:
        newest[record.source] = max(newest[record.source], time_ms(record) or 0)
    return newest


def _possible_watermarks(
    earlier: Sequence[BatchInput], newest: Sequence[dict[str, int]], before_ms: int, delay_ms: int
) -> set[int]:
    """Return the watermark after the earlier batches for each batch at which the last run can have started."""
    ran = [number for number, batch in enumerate(earlier) if not batch.carried]
    if not ran:
        return {before_ms}
    possible = set()
    known = dict.fromkeys(newest[0], 0)
    for start in reversed(ran):
        known = {source: max(time, newest[start][source]) for source, time in known.items()}
        slowest_ms = min(max(0, time - delay_ms) for time in known.values())
        possible.add(max(before_ms, slowest_ms))
    return possible
