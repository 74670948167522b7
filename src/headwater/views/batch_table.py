"""Batches as the rows of a table that people like to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.checkpoint.history import Batch
from headwater.checkpoint.source_offsets import SourceRange, kafka_partitions, log_offset, short_text
from headwater.views.words import count, moment, shortened, span

COLUMNS = ("BATCH", "STATUS", "PLANNED (UTC)", "TOOK", "ROWS", "READ", "WATERMARK (UTC)", "BEHIND", "STATE", "REWIND")
RIGHT = {"BATCH", "TOOK", "ROWS", "BEHIND"}
_GAP = "  "
# What goes first when the terminal is narrow.
EXPENDABLE = ("WATERMARK (UTC)", "STATE", "TOOK", "BEHIND")


def row(batch: Batch) -> tuple[str, ...]:
    """One batch, a text for each of ``COLUMNS``."""
    return (
        str(batch.batch_id),
        batch.status,
        moment(batch.planned_at_ms),
        span(batch.duration_ms),
        _rows(batch),
        "; ".join(reading(source) for source in batch.sources) or "-",
        moment(batch.watermark_ms),
        span(batch.watermark_lag_ms),
        _state(batch),
        "yes" if batch.can_rewind_to else f"no: {batch.why_not}",
    )


def _rows(batch: Batch) -> str:
    if batch.rows is not None:
        return f"{batch.rows:,}"
    files = [source.files for source in batch.sources if source.files is not None]
    if files and len(files) == len(batch.sources):
        return count(sum(files), "file")
    return "?"


def _state(batch: Batch) -> str:
    if batch.state_version is None:
        return "-"
    if not batch.stores_lacking:
        return f"v{batch.state_version}"
    return f"v{batch.state_version} {batch.stores - batch.stores_lacking}/{batch.stores}"


def reading(source: SourceRange) -> str:
    """What a source gave, in one short piece: ``visits 0:1→3 1:0→2``, ``files 3→4``, ``rate 10→12``."""
    if not source.moved:
        return f"{source.kind} -"
    after = kafka_partitions(source.end) if source.kind == "kafka" else None
    if after is not None:
        return _kafka(kafka_partitions(source.start) or {}, after)
    if source.kind in ("files", "table"):
        start, end = log_offset(source.start), log_offset(source.end)
        return f"{source.kind} {'' if start is None else start}→{end}"
    return f"{source.kind} {short_text(source.start, 24)}→{short_text(source.end, 24)}"


def _kafka(before: dict[tuple[str, int], int], after: dict[tuple[str, int], int]) -> str:
    pieces = []
    for topic in dict.fromkeys(topic for topic, _ in after):
        partitions = [place for place in after if place[0] == topic]
        steps = [
            f"{place[1]}:{before.get(place, '…')}→{after[place]}"
            for place in partitions
            if before.get(place) != after[place]
        ]
        if len(steps) > 3:
            steps = [f"{len(steps)} of {len(partitions)} partitions"]
        if steps:
            pieces.append(f"{topic} {' '.join(steps)}")
    return ", ".join(pieces) or "kafka -"


@dataclass(frozen=True)
class Shape:
    """Which columns are shown, and how wide each is. Made from the first rows; later ones may stand out a little."""

    widths: tuple[tuple[int, int], ...]

    def line(self, cells: Sequence[str]) -> str:
        """One row as text; the last column, which may hold a reason, runs on."""
        pieces = []
        for place, size in self.widths:
            name, cell = COLUMNS[place], cells[place]
            fitted = shortened(cell, size) if name == "READ" else cell
            pieces.append(fitted.rjust(size) if name in RIGHT else fitted.ljust(size))
        return _GAP.join(pieces).rstrip()


def shape_of(rows: Sequence[Sequence[str]], room: int | None = None) -> Shape:
    """A shape that fits the rows. With ``room`` what was read is cut, then columns go, until a line without a reason fits."""
    sizes = [max(len(name), *(len(one[place]) for one in rows), 0) for place, name in enumerate(COLUMNS)]
    read = COLUMNS.index("READ")
    sizes[read] = min(sizes[read], 60)
    sizes[-1] = len(COLUMNS[-1])
    shown = list(range(len(COLUMNS)))
    if room is not None:
        sizes[read] = max(min(sizes[read], room - _total(shown, sizes) + sizes[read]), min(sizes[read], 16))
        for name in EXPENDABLE:
            if _total(shown, sizes) > room:
                shown.remove(COLUMNS.index(name))
    return Shape(tuple((place, sizes[place]) for place in shown))


def _total(shown: Sequence[int], sizes: Sequence[int]) -> int:
    return sum(sizes[place] for place in shown) + len(_GAP) * (len(shown) - 1)
