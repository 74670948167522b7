"""Late and malformed records: their number in each batch, and the records themselves on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from headwater.web.slow_runs import SlowRuns
from headwater.web.watch import Snapshot
from headwater.web.widgets import placeholder, replace_with_error

MAX_BATCHES = 30
MAX_RECORDS = 200
FindRecords = Callable[[str, int], list[dict[str, Any]]]
"""Returns the dropped records of a batch, given the location of a checkpoint. Takes seconds, because it starts Spark."""


class RecordsPane:
    """The pane of late and malformed records of one reader."""

    def __init__(self, find: FindRecords | None) -> None:
        self._find = find
        self._counts: list[tuple[int, int, int]] = []
        self._location = ""
        self._runs = SlowRuns()
        self._request = 0

    def build(self) -> None:
        self._list = ui.element("div").classes("hw-records")
        self._found = ui.element("div")

    def update(self, snapshot: Snapshot, location: str) -> None:
        counts = [
            (number, record.dropped, record.malformed)
            for number, record in sorted(snapshot.progress.items(), reverse=True)
            if record.dropped or record.malformed
        ][:MAX_BATCHES]
        if counts == self._counts and self._location == location:
            return
        self._counts, self._location = counts, location
        self._list.clear()
        with self._list:
            if not counts:
                self._show_none(known=bool(snapshot.progress))
            for number, dropped, malformed in counts:
                self._line(number, dropped, malformed)

    def _show_none(self, *, known: bool) -> None:
        text = "No late or malformed records." if known else "Counted only for batches that were run by headwater run."
        placeholder(text, "task_alt" if known else "help_outline")

    def _line(self, number: int, dropped: int, malformed: int) -> None:
        kinds = ((dropped, "late"), (malformed, "malformed"))
        counts = ", ".join(f"{amount:,} {kind}" for amount, kind in kinds if amount)
        with ui.element("div").classes("hw-record-line"):
            ui.label(f"batch {number}").classes("hw-step-batch")
            ui.label(counts)
            ui.space()
            if self._find is not None:
                ui.button("show them", on_click=lambda: self._show(number)).props("flat dense no-caps size=sm")

    async def _show(self, number: int) -> None:
        assert self._find is not None
        self._request += 1
        request, location = self._request, self._location
        self._found.clear()
        with self._found, ui.element("div").classes("hw-placeholder"):
            ui.spinner()
            ui.label(f"Reading the records of batch {number} from the source ...")
        try:
            records = await self._runs.run(lambda: request == self._request, self._find, location, number)
        except Exception as error:
            if request == self._request:
                replace_with_error(self._found, error)
            return
        if records is None or request != self._request:
            return
        self._found.clear()
        with self._found:
            self._table(records)

    def _table(self, records: list[dict[str, Any]]) -> None:
        if not records:
            placeholder("No dropped records of this batch are left in the source.", "task_alt")
            return
        columns = [
            {"name": name, "label": name, "field": name, "align": "left"}
            for name in ("reason", "where", "event", "value")
        ]
        rows = [
            {
                "id": number,
                "reason": record.get("reason"),
                "where": _position(record),
                "event": record.get("event_time") or "-",
                "value": record.get("value") or record.get("value_base64"),
            }
            for number, record in enumerate(records[:MAX_RECORDS])
        ]
        ui.table(rows=rows, columns=columns, row_key="id", pagination=10).props("flat dense").classes("hw-table")


def _position(record: dict[str, Any]) -> str:
    if record.get("kind") == "kafka":
        return f"{record.get('topic')} {record.get('partition')}:{record.get('offset')}"
    return f"{record.get('path', '-')}:{record.get('line', '')}"
