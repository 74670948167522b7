"""The lower half of the page: a slider over the batches, and the state as of the selected one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import events, ui

from headwater.views.batches import offset_ranges
from headwater.views.formatting import format_duration, format_time
from headwater.web.state_cache import StateCache
from headwater.web.state_pane import StatePane
from headwater.web.watch import Snapshot
from headwater.web.widgets import chip, panel, placeholder


class TimeMachine:
    """The time machine of one reader. ``selected`` follows the newest batch until the reader selects another one."""

    def __init__(self, cache: StateCache, on_select: Callable[[int | None], None]) -> None:
        self._on_select = on_select
        self._state = StatePane(cache)
        self.selected: int | None = None
        self.following = True
        self._snapshot = Snapshot()

    def build(self, actions: Callable[[], None]) -> None:
        with panel("Time machine", about="use \u2190 and \u2192 to move through the batches", classes="hw-wide"):
            with ui.element("div").classes("hw-slider-row"):
                ui.button(icon="chevron_left", on_click=lambda: self.step(-1)).props(
                    'flat round dense aria-label="previous batch"'
                )
                self._slider = ui.slider(min=0, max=0, value=0).props('snap aria-label="batch"').classes("hw-slider")
                self._slider.on("update:model-value", self._slid, throttle=0.12)
                ui.button(icon="chevron_right", on_click=lambda: self.step(1)).props(
                    'flat round dense aria-label="next batch"'
                )
                self._follow = ui.switch("follow", value=True, on_change=self._follow_changed)
                actions()
            self._facts = ui.element("div").classes("hw-facts")
            self._state.build()

    async def update(self, snapshot: Snapshot) -> None:
        """Extend the slider to the batches of a snapshot, and move it to the newest one if it follows."""
        self._snapshot = snapshot
        committed = snapshot.committed
        if not committed:
            self._facts.clear()
            with self._facts:
                placeholder("The state appears with the first committed batch.")
            return
        before = self.selected
        if self.following or before is None or before not in committed:
            wanted = committed[-1] if self.following or before is None else before
            self._move_to(min(committed, key=lambda number: abs(number - wanted)))
        else:
            self._show_facts()
        assert self.selected is not None
        self._slider.props(f"min=0 max={len(committed) - 1}")
        self._slider.set_value(committed.index(self.selected))
        if not (self.following and self._state.is_throttled):
            await self._state.show(self.selected, committed[-1])

    def step(self, by: int) -> None:
        """Select the previous batch (-1) or the next one (1)."""
        committed = self._snapshot.committed
        if self.selected in committed:
            index = committed.index(self.selected) + by
            if 0 <= index < len(committed):
                self.go_to(committed[index])

    def go_to(self, batch: int) -> None:
        """Select a batch, and stop following the newest one."""
        committed = self._snapshot.committed
        if batch not in committed:
            return
        self.following = False
        self._follow.set_value(False)
        self._move_to(batch)
        self._slider.set_value(committed.index(batch))
        ui.timer(0, lambda: self._state.show(batch, committed[-1]), once=True)

    def _move_to(self, batch: int) -> None:
        self.selected = batch
        self._on_select(batch)
        self._show_facts()

    def _slid(self, event: events.GenericEventArguments) -> None:
        committed = self._snapshot.committed
        index = int(event.args) if isinstance(event.args, int | float) else -1
        if 0 <= index < len(committed) and committed[index] != self.selected:
            self.go_to(committed[index])

    async def _follow_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if self.following != bool(event.value):
            self.following = bool(event.value)
            if self.following:
                await self.update(self._snapshot)

    def _show_facts(self) -> None:
        batch = next((batch for batch in self._snapshot.batches if batch.batch_id == self.selected), None)
        if batch is None:
            return
        record = self._snapshot.progress.get(batch.batch_id)
        took_ms = record.duration_ms if record and record.duration_ms else batch.duration_ms
        self._facts.clear()
        with self._facts:
            ui.label(f"batch {batch.batch_id}").classes("hw-batch").props(f'data-batch="{batch.batch_id}"')
            for name in self._snapshot.kept.get(batch.batch_id, ()):
                chip(f"kept as {name}", "good").props(f'data-kept="{name}"')
            if batch.can_rewind_to:
                chip("can be rewound to", "good")
            else:
                chip(f"cannot be rewound to: {batch.why_not}", "dull")
            for name, text in (
                ("planned", format_time(batch.planned_at_ms)),
                ("took", format_duration(took_ms)),
                ("read", offset_ranges(batch.sources)),
                ("watermark", format_time(batch.watermark_ms)),
            ):
                with ui.element("span").classes("hw-fact"):
                    ui.label(name).classes("hw-fact-name")
                    ui.label(text)
