"""The page as one reader sees it, on one of several checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from nicegui import events, ui

from headwater.checkpoint.filetree import FileTree
from headwater.kafka.options import Connection
from headwater.views.page_events import Events, timeline_marks
from headwater.web.findings_pane import FindingsPane, JournalPane
from headwater.web.fork_pane import ForkPane
from headwater.web.frame import Frame
from headwater.web.gate import Visitor
from headwater.web.kafka_lag import KafkaLag
from headwater.web.overview import Overview
from headwater.web.permalink import Place
from headwater.web.records_pane import FindRecords, RecordsPane
from headwater.web.relatives import Relative, Relatives
from headwater.web.restore_points_pane import PointReach, RestorePointsPane
from headwater.web.state_cache import FindViewRows, StateCache
from headwater.web.time_machine import TimeMachine
from headwater.web.watch import Snapshot, WatchedCheckpoint
from headwater.web.widgets import help_dialog, listen_to_keys, panel, placeholder, show_error

TICK_SECONDS = 0.3
START = Place()
KEYS = {
    "\u2190 \u2192": "previous and next batch",
    "Home End": "oldest and newest batch",
    "F": "follow the newest batch, or stop following it",
    "C": "compare other batches with this one",
    "/": "find a key in all batches",
    "Tab Enter": "reach a row of the state, and show the history of its key",
    "?": "show these keys",
}
Actions = Callable[[Callable[[], FileTree | None], Callable[[], int | None]], None]
"""Builds the buttons that change a checkpoint, given functions for its files and the selected batch."""


class SharedCheckpoint:
    """A checkpoint with the data that all readers of the page share."""

    def __init__(
        self,
        watched: WatchedCheckpoint,
        connection: Connection | None = None,
        find_view_rows: FindViewRows | None = None,
    ) -> None:
        self.watched = watched
        self.connection = connection
        self.cache = StateCache(watched, find_view_rows)
        self.lag = KafkaLag(connection)
        self.reach = PointReach(watched)
        self.used_at = time.monotonic()
        """When a page last showed it."""


class Page:
    """The page of one reader. Without ``actions`` it is read-only."""

    def __init__(
        self,
        checkpoints: Sequence[SharedCheckpoint],
        visitor: Visitor,
        actions: Actions | None,
        find_records: FindRecords | None,
        *,
        relatives: Relatives,
        home: str | None = None,
        place: Place = START,
        path: str = "/",
    ) -> None:
        self._all = checkpoints
        self._relatives = relatives
        self._place = place
        self._path = path
        self._frame = Frame(visitor)
        self._home = home
        named = [one for one in checkpoints if one.watched.name == place.name]
        self._shown = (named or checkpoints)[0]
        self._actions = actions
        self._find_records = find_records
        self._version = -1
        self._ticks = 0
        self._busy = False
        self._forks_drawn: list[tuple[int, str, int | None]] = []

    def build(self) -> None:
        self._frame.build(self._build_about, home=self._home)
        self._main = ui.element("div").classes("hw-main")
        with self._main:
            self._build_panels()
        self._help = help_dialog(KEYS)
        listen_to_keys(self._key_actions)
        ui.timer(TICK_SECONDS, self._tick)

    def _build_about(self) -> None:
        names = {number: checkpoint.watched.name for number, checkpoint in enumerate(self._all)}
        if len(names) > 1:
            chosen = ui.select(names, value=self._all.index(self._shown), on_change=self._choose)
            chosen.props('dense borderless aria-label="checkpoint"').classes("hw-checkpoint")
        else:
            ui.label(names[0]).classes("hw-checkpoint")
        self._status = ui.label().classes("hw-chip").props("data-status")

    def _build_panels(self) -> None:
        shown = self._shown
        self._problem = ui.element("div")
        self._overview = Overview(on_pick=self._go_to, lag=shown.lag)
        self._machine = TimeMachine(shown.cache, self._place, self._overview.select, self._moved)
        self._records = RecordsPane(self._find_records)
        self._findings, self._journal = FindingsPane(shown.connection), JournalPane()
        self._points = RestorePointsPane(shown.reach)
        self._fork = ForkPane(shown.watched.name, self._go_to)
        self._overview.build()
        self._fork.build()
        self._machine.build(self._build_actions)
        with ui.element("div").classes("hw-charts"):
            with panel("Late and malformed", about="records that were not counted"):
                self._records.build()
            with panel("Checks and journal", about="findings of fsck, changes made by Headwater, restore points"):
                with ui.tabs().props("dense no-caps align=left inline-label") as tabs:
                    journal, points, findings = ui.tab("Journal"), ui.tab("Restore points"), ui.tab("Checks")
                with ui.tab_panels(tabs, value=journal, on_change=self._tab_changed).classes("hw-tab-panels"):
                    with ui.tab_panel(journal):
                        self._journal.build()
                    with ui.tab_panel(points):
                        self._points.build()
                    with ui.tab_panel(findings):
                        self._findings.build()

    def _moved(self, place: Place) -> None:
        """Put a link to what is shown into the address bar."""
        ui.navigate.history.replace(f"{self._path}{place.query()}")

    def _go_to(self, batch: int) -> None:
        self._machine.go_to(batch)

    def _build_actions(self) -> None:
        if self._actions is not None:
            shown, machine = self._shown, self._machine
            self._actions(lambda: shown.watched.files, lambda: machine.selected)

    def _choose(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._shown = self._all[int(event.value)]
        self._moved(Place(self._shown.watched.name))
        self._place = Place(self._shown.watched.name)
        self._version = -1
        self._main.clear()
        with self._main:
            self._build_panels()

    async def _tab_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value == "Checks":
            await self._findings.check_once()

    def _key_actions(self) -> dict[str, Callable[[], None]]:
        machine = self._machine
        return {
            "ArrowLeft": lambda: machine.step(-1),
            "ArrowRight": lambda: machine.step(1),
            "Home": lambda: machine.go_to_end(newest=False),
            "End": lambda: machine.go_to_end(newest=True),
            "c": machine.toggle_compare,
            "f": machine.toggle_follow,
            "/": machine.find_key,
            "?": self._help.open,
        }

    async def _tick(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self._ticks += 1
            self._shown.used_at = time.monotonic()
            snapshot = self._shown.watched.snapshot
            if snapshot.version != self._version:
                self._version = snapshot.version
                await self._update(snapshot)
            elif self._ticks % 3 == 0:
                self._overview.tick()
                self._points.tick()
                self._update_relatives(snapshot)
        finally:
            self._busy = False

    def _update_relatives(self, snapshot: Snapshot) -> None:
        relatives = self._relatives.of(self._shown.watched)
        if _forks(relatives) != self._forks_drawn:
            self._version = -1  # the next tick draws their marks
        self._fork.update(snapshot, relatives)

    async def _update(self, snapshot: Snapshot) -> None:
        self._show_status(snapshot)
        self._show_problem(snapshot)
        relatives = self._relatives.of(self._shown.watched)
        self._forks_drawn = _forks(relatives)
        marks = timeline_marks(
            snapshot.batches,
            snapshot.progress,
            Events(snapshot.journal, snapshot.plans, snapshot.failures, snapshot.runs, self._forks_drawn),
        )
        self._overview.update(snapshot, self._machine.selected, marks)
        self._fork.update(snapshot, relatives)
        self._records.update(snapshot, self._shown.watched.files.location if self._shown.watched.files else "")
        self._findings.update(self._shown.watched.files)
        self._journal.update(snapshot)
        self._points.update(snapshot)
        await self._machine.update(snapshot, marks)

    def _show_status(self, snapshot: Snapshot) -> None:
        lease = snapshot.lease
        text, kind = (f"running, pid {lease.pid or 'unknown'}", "good") if lease else ("no query running", "dull")
        if snapshot.problem:
            text, kind = "unreadable", "bad"
        elif snapshot.loading:
            text, kind = "reading ...", "dull"
        self._status.set_text(text)
        self._status.classes(replace=f"hw-chip hw-chip-{kind}")

    def _show_problem(self, snapshot: Snapshot) -> None:
        self._problem.clear()
        with self._problem:
            if snapshot.problem is not None and snapshot.batches:
                show_error(snapshot.problem)
            elif snapshot.problem is not None:
                placeholder(f"Waiting for a checkpoint: {snapshot.problem.problem}.")
            elif not snapshot.batches and not snapshot.loading:
                placeholder("Waiting for the first batch.")


def _forks(relatives: Sequence[Relative]) -> list[tuple[int, str, int | None]]:
    return [
        (one.at, f"forked from {one.name}" if one.is_original else f"fork: {one.name}", one.forked_at_ms)
        for one in relatives
        if one.at is not None
    ]
