"""The table of ``log``: a row per batch, and a layout that fits the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.checkpoint.history import Batch
from headwater.core.text import count
from headwater.views.batches import change_text, offset_ranges
from headwater.views.formatting import format_duration, format_time, shorten

if TYPE_CHECKING:
    from headwater.timemachine.journal import Entry

COLUMNS = (
    "BATCH",
    "STATUS",
    "PLANNED (UTC)",
    "TOOK",
    "ROWS",
    "READ",
    "UNREAD",
    "WATERMARK (UTC)",
    "LAG",
    "STATE",
    "REWIND",
)
_RIGHT_ALIGNED = {"BATCH", "TOOK", "ROWS", "LAG"}
# Dropped in this order when the terminal is narrow.
_OPTIONAL = ("UNREAD", "WATERMARK (UTC)", "STATE", "TOOK", "LAG")
_GAP = "  "
_MAX_READ_WIDTH, _MIN_READ_WIDTH = 110, 16


def batch_cells(batch: Batch, added_by: Entry | None = None, kept: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the texts of a batch for ``COLUMNS``; the rest is as in ``batch_as_dict``."""
    return (
        str(batch.batch_id),
        batch.status,
        format_time(added_by.done_at_ms if added_by else batch.planned_at_ms),
        format_duration(None if added_by else batch.duration_ms),
        _rows_cell(batch),
        change_text(added_by) if added_by else offset_ranges(batch.sources),
        _unread_cell(batch),
        format_time(batch.watermark_ms),
        format_duration(batch.watermark_lag_ms),
        _state_cell(batch),
        _rewind_cell(batch, kept),
    )


def batches_as_csv(batches: Iterable[Batch]) -> str:
    """Return the table of ``log`` as CSV, with a header."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(batch_cells(batch) for batch in batches)
    return text.getvalue()


def _rewind_cell(batch: Batch, kept: Sequence[str]) -> str:
    if kept:
        return f"yes, kept as {', '.join(kept)}"
    return "yes" if batch.can_rewind_to else f"no: {batch.why_not}"


def _rows_cell(batch: Batch) -> str:
    if batch.rows is not None:
        return f"{batch.rows:,}"
    files = [source.files for source in batch.sources if source.files is not None]
    if files and len(files) == len(batch.sources):
        return count(sum(files), "file")
    return "?"


def _unread_cell(batch: Batch) -> str:
    """Return the unread records of each source, in the order of READ; empty with a single source or without a record."""
    lags = [source.lag for source in batch.sources]
    if len(lags) < 2 or all(lag is None for lag in lags):
        return ""
    return "; ".join("-" if lag is None else f"{lag:,}" for lag in lags)


def _state_cell(batch: Batch) -> str:
    if batch.state_version is None:
        return "-"
    if not batch.stores_missing:
        return f"v{batch.state_version}"
    return f"v{batch.state_version} {batch.stores - batch.stores_missing}/{batch.stores}"


@dataclass(frozen=True)
class TableLayout:
    """The shown columns of the table of batches and their widths, taken from the first rows. Later rows may exceed them."""

    widths: tuple[tuple[int, int], ...]

    def line(self, cells: Sequence[str]) -> str:
        """Return a row as text. The last column, which may hold a reason, is never cut."""
        parts = []
        for column, width in self.widths:
            name, cell = COLUMNS[column], cells[column]
            text = shorten(cell, width) if name == "READ" else cell
            parts.append(text.rjust(width) if name in _RIGHT_ALIGNED else text.ljust(width))
        return _GAP.join(parts).rstrip()


def table_layout(rows: Sequence[Sequence[str]], terminal_width: int | None = None) -> TableLayout:
    """Return a layout for the rows.

    If the terminal is too narrow, READ is shortened first, and then columns are left out. The reasons in the last column
    do not count.
    """
    widths = [max(len(name), *(len(row[column]) for row in rows), 0) for column, name in enumerate(COLUMNS)]
    read = COLUMNS.index("READ")
    widths[read] = min(widths[read], _MAX_READ_WIDTH)
    widths[-1] = len(COLUMNS[-1])
    shown = list(range(len(COLUMNS)))
    if not any(row[COLUMNS.index("UNREAD")] for row in rows):
        shown.remove(COLUMNS.index("UNREAD"))
    if terminal_width is not None:
        available = terminal_width - _line_width(shown, widths) + widths[read]
        widths[read] = max(min(widths[read], available), min(widths[read], _MIN_READ_WIDTH))
        for name in _OPTIONAL:
            if _line_width(shown, widths) > terminal_width and COLUMNS.index(name) in shown:
                shown.remove(COLUMNS.index(name))
    return TableLayout(tuple((column, widths[column]) for column in shown))


def _line_width(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[column] for column in shown) + len(_GAP) * (len(shown) - 1)
