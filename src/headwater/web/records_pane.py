"""Late and malformed records: how many of each batch, and the records themselves when asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nicegui import ui

from headwater.core.errors import HeadwaterError, Surprise
from headwater.web.pieces import nothing, show_error
from headwater.web.watch import Snapshot

MOST_BATCHES = 30
MOST_RECORDS = 200
FindRecords = Callable[[str, int], list[dict[str, Any]]]
"""Takes a checkpoint's location and a batch; takes seconds, because it reads the source again through Spark."""


class RecordsPane:
    def __init__(self, find: FindRecords | None) -> None:
        self._find = find
        self._counts: list[tuple[int, int, int]] = []
        self._location = ""

    def build(self) -> None:
        self._list = ui.element("div").classes("hw-records")
        self._found = ui.element("div")

    def update(self, snapshot: Snapshot, location: str) -> None:
        counts = [
            (number, record.dropped, record.malformed)
            for number, record in sorted(snapshot.progress.items(), reverse=True)
            if record.dropped or record.malformed
        ][:MOST_BATCHES]
        if counts == self._counts and self._location == location:
            return
        self._counts, self._location = counts, location
        self._list.clear()
        with self._list:
            if not counts:
                self._say_none(known=bool(snapshot.progress))
            for number, dropped, malformed in counts:
                self._line(number, dropped, malformed)

    def _say_none(self, *, known: bool) -> None:
        told = "No record was late or malformed." if known else "Counted for batches that ran under headwater run."
        nothing(told, "task_alt" if known else "help_outline")

    def _line(self, number: int, dropped: int, malformed: int) -> None:
        told = ", ".join(f"{count:,} {what}" for count, what in ((dropped, "late"), (malformed, "malformed")) if count)
        with ui.element("div").classes("hw-record-line"):
            ui.label(f"batch {number}").classes("hw-step-batch")
            ui.label(told)
            ui.space()
            if self._find is not None:
                ui.button("show them", on_click=lambda: self._show(number)).props("flat dense no-caps size=sm")

    async def _show(self, number: int) -> None:
        assert self._find is not None
        self._found.clear()
        with self._found, ui.element("div").classes("hw-nothing"):
            ui.spinner()
            ui.label(f"Reading batch {number} again from its source ...")
        try:
            records = await asyncio.to_thread(self._find, self._location, number)
        except Exception as error:
            self._found.clear()
            with self._found:
                show_error(error if isinstance(error, HeadwaterError) else Surprise(error))
            return
        self._found.clear()
        with self._found:
            self._table(records)

    def _table(self, records: list[dict[str, Any]]) -> None:
        if not records:
            nothing("This batch dropped nothing that its source still has.", "task_alt")
            return
        columns = [
            {"name": name, "label": name, "field": name, "align": "left"}
            for name in ("reason", "where", "event", "value")
        ]
        rows = [
            {
                "id": place,
                "reason": record.get("reason"),
                "where": _where(record),
                "event": record.get("event_time") or "-",
                "value": record.get("value"),
            }
            for place, record in enumerate(records[:MOST_RECORDS])
        ]
        ui.table(rows=rows, columns=columns, row_key="id", pagination=10).props("flat dense").classes("hw-table")


def _where(record: dict[str, Any]) -> str:
    if record.get("kind") == "kafka":
        return f"{record.get('topic')} {record.get('partition')}:{record.get('offset')}"
    return f"{record.get('path', '-')}:{record.get('line', '')}"
