"""The streams of a fleet in three forms: dictionaries for ``--json``, a table for the terminal, and rows of the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.core.text import displayable
from headwater.core.times import iso_from_ms
from headwater.fleet.fleet import Stream
from headwater.fleet.graph import Edge
from headwater.fleet.summary import StreamSummary
from headwater.fleet.trouble import Status, Trouble
from headwater.views.formatting import format_bytes, format_duration

SPARK_BATCHES = 24
_BARS = "▁▂▃▄▅▆▇█"
_GAP = "  "
_MAX_NAME_WIDTH, _MIN_NAME_WIDTH = 60, 20
STATUS_LABELS: dict[Status, str] = {
    "running": "running",
    "active": "running?",
    "changing": "changing",
    "failed": "failed",
    "stopped": "stopped",
    "quiet": "quiet",
    "moved": "moved",
}


@dataclass(frozen=True)
class StreamView:
    """A stream at one time, with the texts of its table row."""

    stream: Stream
    now_ms: int

    @property
    def summary(self) -> StreamSummary:
        return self.stream.summary

    @property
    def troubles(self) -> list[Trouble]:
        return self.stream.troubles(self.now_ms)

    @property
    def age_ms(self) -> int | None:
        """The time since the newest batch was committed or planned."""
        at_ms = self.summary.changed_at_ms or self.summary.planned_at_ms
        return None if at_ms is None else max(0, self.now_ms - at_ms)

    @property
    def watermark_delay_ms(self) -> int | None:
        """How far the watermark is behind the clock; for a stream that does not run, as of its last batch."""
        if self.summary.watermark_ms is None:
            return None
        running = self.stream.activity(self.now_ms).is_running
        at_ms = self.now_ms if running else self.summary.planned_at_ms
        return None if at_ms is None else at_ms - self.summary.watermark_ms

    @property
    def state_bytes(self) -> int | None:
        """The state in memory as recorded, or else on disk, if that was measured."""
        if self.summary.state_bytes is not None:
            return self.summary.state_bytes
        checked = self.stream.checked
        return checked.state_bytes if checked and checked.state_bytes else None

    def as_dict(self, edges: Iterable[Edge] = ()) -> dict[str, Any]:
        """Return the JSON form that ``log ROOT --json`` prints."""
        summary, activity = self.summary, self.stream.activity(self.now_ms)
        return {
            "checkpoint": self.stream.location,
            "name": self.stream.name,
            "job": summary.job.job,
            "status": activity.status,
            "status_evidence": activity.how,
            "last_batch": summary.last_batch,
            "last_batch_status": None
            if summary.last_batch is None
            else ("planned" if summary.is_uncommitted else "committed"),
            "last_batch_at": _iso(summary.changed_at_ms or summary.planned_at_ms),
            "input_rate": _rounded(summary.input_rate),
            "processed_rate": _rounded(summary.processed_rate),
            "lag": summary.lag_rows,
            "watermark": _iso(summary.watermark_ms),
            "watermark_delay_ms": self.watermark_delay_ms,
            "watermark_hold": summary.hold.as_dict() if summary.hold else None,
            "state_rows": summary.state_rows,
            "state_bytes": summary.state_bytes,
            "state_growth": _rounded(summary.state_growth),
            "dropped": summary.dropped,
            "malformed": summary.malformed,
            "recent_batches": len(summary.recent),
            "restore_points": summary.points,
            "troubles": [
                {"severity": trouble.severity, "code": trouble.code, "text": trouble.text} for trouble in self.troubles
            ],
            "feeds": [
                {"name": edge.target, "by": edge.label, "certain": edge.is_certain}
                for edge in edges
                if edge.source == self.stream.name and edge.kind == "feeds"
            ],
            "forked_from": summary.forked_from,
        }

    def as_row(self) -> dict[str, Any]:
        """Return the row of the page's table: texts, and what the browser needs to color them."""
        summary, activity = self.summary, self.stream.activity(self.now_ms)
        troubles = self.troubles
        row = {
            "id": self.stream.name,
            "name": self.stream.name,
            "job": summary.job.job or "",
            "location": self.stream.location,
            "status": STATUS_LABELS[activity.status],
            "how": activity.how,
            "kind": _chip(activity.status),
            "batch": _text(summary.last_batch),
            "planned": summary.is_uncommitted,
            "age": _age(self.age_ms),
            "in": _rate(summary.input_rate),
            "out": _rate(summary.processed_rate),
            "lag": _count(summary.lag_rows),
            "watermark": _delay(self.watermark_delay_ms),
            "hold": str(summary.hold) if summary.hold else "",
            "state": _state(self),
            "trend": _growth(summary.state_growth),
            "dropped": _dropped(summary),
            "findings": _findings(self.stream),
            "kept": str(summary.points or ""),
            "spark": _points(summary),
            "severity": troubles[0].severity if troubles else "",
            "trouble": "; ".join(trouble.text for trouble in troubles if trouble.code != "stopped"),
        }
        return {name: displayable(value) if isinstance(value, str) else value for name, value in row.items()}


def streams_as_csv(views: Sequence[StreamView]) -> str:
    """Return streams as CSV, a line for each, with the columns and texts of the table."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["CHECKPOINT", *(name for name, _, _ in _COLUMNS)])
    writer.writerows([view.stream.location, *(cell(view) for _, cell, _ in _COLUMNS)] for view in views)
    return displayable(buffer.getvalue())


Cell = Callable[[StreamView], str]
_COLUMNS: tuple[tuple[str, Cell, bool], ...] = (
    ("NAME", lambda view: view.stream.name, False),
    ("STATUS", lambda view: STATUS_LABELS[view.stream.activity(view.now_ms).status], False),
    ("BATCH", lambda view: _text(view.summary.last_batch) + ("*" if view.summary.is_uncommitted else ""), True),
    ("AGE", lambda view: _age(view.age_ms), True),
    ("IN/S", lambda view: _rate(view.summary.input_rate), True),
    ("CAPACITY/S", lambda view: _rate(view.summary.processed_rate), True),
    ("LAG", lambda view: _count(view.summary.lag_rows), True),
    ("WATERMARK", lambda view: _delay(view.watermark_delay_ms), True),
    ("STATE", lambda view: " ".join(filter(None, [_state(view), _growth(view.summary.state_growth)])), True),
    ("DROPPED", lambda view: _dropped(view.summary), True),
    ("KEPT", lambda view: str(view.summary.points or "-"), True),
    ("ROWS", lambda view: sparkline(_rows(view.summary)), False),
    ("TROUBLE", lambda view: "; ".join(trouble.text for trouble in view.troubles if trouble.code != "stopped"), False),
)
# Dropped in this order when the terminal is narrow.
_OPTIONAL = ("CAPACITY/S", "KEPT", "ROWS", "DROPPED", "WATERMARK", "IN/S", "STATE", "LAG")


def table_lines(views: Sequence[StreamView], terminal_width: int | None = None) -> list[str]:
    """Return the table that ``log ROOT`` prints: a line for each stream. TROUBLE, the last column, is never cut."""
    cells = [[cell(view) for _, cell, _ in _COLUMNS] for view in views]
    widths = [max(len(name), *(len(row[column]) for row in cells), 0) for column, (name, _, _) in enumerate(_COLUMNS)]
    widths[0] = min(widths[0], _MAX_NAME_WIDTH)
    widths[-1] = 0
    shown = list(range(len(_COLUMNS)))
    for name in _OPTIONAL:
        if terminal_width is not None and _width(shown, widths) > terminal_width:
            shown.remove(next(column for column, known in enumerate(_COLUMNS) if known[0] == name))
    if terminal_width is not None:
        available = terminal_width - _width(shown[1:], widths) - len(_GAP)
        widths[0] = max(min(widths[0], available), min(widths[0], _MIN_NAME_WIDTH))
    return [_line(row, shown, widths) for row in [[name for name, _, _ in _COLUMNS], *cells]]


def _width(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[column] for column in shown) + len(_GAP) * (len(shown) - 1)


def _line(cells: Sequence[str], shown: Sequence[int], widths: Sequence[int]) -> str:
    parts = []
    for column in shown:
        text = _end_of(cells[column], widths[0]) if column == 0 else cells[column]
        parts.append(text.rjust(widths[column]) if _COLUMNS[column][2] else text.ljust(widths[column]))
    return _GAP.join(parts).rstrip()


def _end_of(name: str, width: int) -> str:
    """Return a name that is cut at its beginning, where names below one root are alike."""
    return name if len(name) <= width else f"…{name[len(name) - width + 1 :]}"


def sparkline(numbers: Sequence[int | None]) -> str:
    """Return numbers as bars of text, a space where one is unknown."""
    most = max((number for number in numbers if number is not None), default=0)
    scale = (len(_BARS) - 1) / most if most else 0
    return "".join(" " if number is None else _BARS[round(number * scale)] for number in numbers)


def _rows(summary: StreamSummary) -> list[int | None]:
    """Return the rows of the last batches; none of them if they are known only for batches without input."""
    found = [batch.rows for batch in summary.recent[-SPARK_BATCHES:]]
    return found if any(found) else []


def _points(summary: StreamSummary) -> str:
    """Return the rows of the recent batches as the points of a line in a box of 96 by 22."""
    numbers = [number or 0 for number in _rows(summary)]
    if len(numbers) < 2:
        return ""
    most = max(numbers) or 1
    step = 96 / (len(numbers) - 1)
    return " ".join(f"{place * step:.1f},{21 - number / most * 20:.1f}" for place, number in enumerate(numbers))


def _chip(status: Status) -> str:
    return {"running": "good", "active": "good", "changing": "warn", "failed": "bad"}.get(status, "dull")


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _rate(number: float | None) -> str:
    if number is None:
        return "-"
    if 0 < number < 0.1:
        return "<0.1"
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.1f}"


def _age(milliseconds: int | None) -> str:
    return format_duration(None if milliseconds is None else milliseconds // 1000 * 1000).replace(".0 s", " s")


def _delay(milliseconds: int | None) -> str:
    return _age(milliseconds)


def _state(view: StreamView) -> str:
    rows, size = view.summary.state_rows, view.state_bytes
    if rows is None:
        return "-" if size is None else f"{format_bytes(size)} on disk"
    return f"{rows:,}"


def _growth(share: float | None) -> str:
    if share is None or abs(share) < 0.01:
        return "" if share is None else "±0%"
    return f"{share:+.0%}"


def _dropped(summary: StreamSummary) -> str:
    if summary.dropped is None:
        return "-"
    return f"{summary.dropped + (summary.malformed or 0):,}"


def _findings(stream: Stream) -> str:
    if stream.findings is None:
        return "…"
    errors = sum(finding.severity == "error" for finding in stream.findings)
    warnings = sum(finding.severity == "warning" for finding in stream.findings)
    if not errors and not warnings:
        return "ok"
    return ", ".join(f"{number} {name}" for number, name in ((errors, "err"), (warnings, "warn")) if number)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _iso(epoch_ms: int | None) -> str | None:
    return None if epoch_ms is None else iso_from_ms(epoch_ms)


def edge_lines(edges: Iterable[Edge]) -> list[str]:
    """Return how streams feed each other, one line for each pair: ``visits → totals (kafka clean)``."""
    return [
        f"{edge.source} → {edge.target} ({edge.label}{'' if edge.is_certain else ', by the name of the topic only'})"
        for edge in edges
    ]


def row_matches(row: dict[str, Any], search: str) -> bool:
    """Return whether a row of the page contains a text."""
    wanted = search.lower()
    return any(wanted in str(row[name]).lower() for name in ("name", "job", "status", "trouble", "location"))
