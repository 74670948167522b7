"""Batches as the rows of a table that people like to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.checkpoint.history import Batch
from headwater.checkpoint.source_offsets import SourceRange, log_offset, short_text
from headwater.views.words import count, moment, shortened, span

COLUMNS = ("BATCH", "STATUS", "PLANNED (UTC)", "TOOK", "ROWS", "READ", "WATERMARK (UTC)", "BEHIND", "STATE", "REWIND")
RIGHT = {"BATCH", "TOOK", "ROWS", "BEHIND"}
_GAP = "  "
_LEAST_WIDTHS = {"STATUS": 9, "PLANNED (UTC)": 19, "TOOK": 7, "ROWS": 6, "READ": 20, "WATERMARK (UTC)": 19}


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
    if source.kind == "kafka" and isinstance(source.end, dict):
        return _kafka(source)
    if source.kind in ("files", "table"):
        start, end = log_offset(source.start), log_offset(source.end)
        return f"{source.kind} {'' if start is None else start}→{end}"
    return f"{source.kind} {short_text(source.start, 24)}→{short_text(source.end, 24)}"


def _kafka(source: SourceRange) -> str:
    pieces = []
    start: dict[str, Any] = source.start if isinstance(source.start, dict) else {}
    for topic, partitions in source.end.items():
        before = start.get(topic, {})
        steps = [
            f"{partition}:{before.get(partition, '…')}→{offset}"
            for partition, offset in partitions.items()
            if before.get(partition) != offset
        ]
        if len(steps) > 3:
            steps = [f"{len(steps)} of {len(partitions)} partitions"]
        if steps:
            pieces.append(f"{topic} {' '.join(steps)}")
    return ", ".join(pieces) or "kafka -"


def widths(rows: Sequence[Sequence[str]], room: int | None = None) -> list[int]:
    """How wide each column has to be. With ``room``, what was read is cut so that a line fits, if it can."""
    found = [
        max(len(name), _LEAST_WIDTHS.get(name, 0) if not rows else 0, *(len(one[place]) for one in rows), 0)
        for place, name in enumerate(COLUMNS)
    ]
    read = COLUMNS.index("READ")
    found[read] = min(found[read], 60)
    if room is not None:
        others = sum(found) - found[read] - found[-1] + len("REWIND") + len(_GAP) * (len(COLUMNS) - 1)
        found[read] = max(min(found[read], room - others), 16)
    return found


def line(cells: Sequence[str], sizes: Sequence[int]) -> str:
    """One row as text; the last column, which may hold a reason, runs on."""
    pieces = []
    for name, cell, size in zip(COLUMNS, cells, sizes, strict=True):
        fitted = shortened(cell, size) if name == "READ" else cell
        pieces.append(fitted.rjust(size) if name in RIGHT else fitted.ljust(size))
    return _GAP.join(pieces).rstrip()
