"""The lower half of the page: a slider over the batches, and the state as of the selected one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import events, ui

from headwater.checkpoint.history import Batch
from headwater.views.batch_phases import compare_phases, explain_skew
from headwater.views.batches import offset_ranges
from headwater.views.formatting import format_duration, format_time
from headwater.views.page_events import Mark
from headwater.views.page_state import JobStateView, StateView
from headwater.web import charts
from headwater.web.key_search_pane import KeySearchPane
from headwater.web.permalink import Place
from headwater.web.state_cache import StateCache
from headwater.web.state_pane import StatePane
from headwater.web.watch import Snapshot
from headwater.web.widgets import chip, mark, panel, placeholder, save_as_png

UNKNOWN = "Known only for batches that were run by headwater run, or by a program with headwater.attach."
MOST_EVENTS = 4


class TimeMachine:
    """The time machine of one reader. ``selected`` follows the newest batch until the reader selects another one."""

    def __init__(
        self,
        cache: StateCache,
        place: Place,
        on_select: Callable[[int | None], None],
        on_moved: Callable[[Place], None],
    ) -> None:
        self._on_select = on_select
        self._on_moved = on_moved
        self._batch = BatchPane()
        self._state = StatePane(cache, self._batch.show_state, self._moved)
        self._state.state = place.state
        self._search = KeySearchPane(cache, lambda: self._state.target, self._state.open_key, self.go_to)
        self._place = place
        self.selected: int | None = place.batch
        self.since: int | None = place.since
        """The batch that the reader compares others with, None for the previous one of each."""
        self.following = place.batch is None
        self._key_to_open = place.key
        self._snapshot = Snapshot()
        self._marks: Mapping[int, Sequence[Mark]] = {}

    def build(self, actions: Callable[[], None]) -> None:
        with panel("Time machine", about="press ? for the keys", classes="hw-wide"):
            with ui.element("div").classes("hw-slider-row"):
                ui.button(icon="chevron_left", on_click=lambda: self.step(-1)).props(
                    'flat round dense aria-label="previous batch"'
                )
                self._slider = ui.slider(min=0, max=0, value=0).props('snap aria-label="batch"').classes("hw-slider")
                self._slider.on("update:model-value", self._slid, throttle=0.12)
                ui.button(icon="chevron_right", on_click=lambda: self.step(1)).props(
                    'flat round dense aria-label="next batch"'
                )
                self._follow = ui.switch("follow", value=self.following, on_change=self._follow_changed)
                self._compare = ui.button("Compare", icon="compare_arrows", on_click=self.toggle_compare).props(
                    "flat no-caps dense data-compare"
                )
                actions()
            self._facts = ui.element("div").classes("hw-facts")
            self._state.build()
        self._batch.build()
        self._search.build()

    async def update(self, snapshot: Snapshot, marks: Mapping[int, Sequence[Mark]]) -> None:
        """Extend the slider to the batches of a snapshot, and move it to the newest one if it follows."""
        self._snapshot, self._marks = snapshot, marks
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
            self._on_select(before)
            self._show_facts()
        assert self.selected is not None
        mark(self._slider, "max", len(committed) - 1)
        self._slider.set_value(committed.index(self.selected))
        if not (self.following and self._state.is_throttled):
            await self._state.show(self.selected, committed[-1], self.since)
            if self._key_to_open is not None:
                key, self._key_to_open = self._key_to_open, None
                await self._state.open_key(key)

    def step(self, by: int) -> None:
        """Select the previous batch (-1) or the next one (1)."""
        committed = self._snapshot.committed
        if self.selected in committed:
            index = committed.index(self.selected) + by
            if 0 <= index < len(committed):
                self.go_to(committed[index])

    def find_key(self) -> None:
        """Put the cursor into the search over all batches."""
        self._search.focus()

    def go_to_end(self, *, newest: bool) -> None:
        """Select the newest or the oldest batch."""
        if committed := self._snapshot.committed:
            self.go_to(committed[-1 if newest else 0])

    def toggle_follow(self) -> None:
        """Follow the newest batch, or stop following it."""
        self._follow.set_value(not self.following)

    def go_to(self, batch: int) -> None:
        """Select a batch, and stop following the newest one."""
        committed = self._snapshot.committed
        if batch not in committed:
            return
        self.following = False
        self._follow.set_value(False)
        self._move_to(batch)
        self._slider.set_value(committed.index(batch))
        self._moved()
        self._read_state(batch)

    def toggle_compare(self) -> None:
        """Compare other batches with the selected one from now on, or each with its previous one again."""
        self.since = self.selected if self.since is None else None
        self._moved()
        self._show_facts()
        if self.selected is not None:
            self._read_state(self.selected)

    def _read_state(self, batch: int) -> None:
        newest = self._snapshot.committed[-1]
        ui.timer(0, lambda: self._state.show(batch, newest, self.since), once=True)

    def _moved(self) -> None:
        """Report where the reader is now."""
        batch = None if self.following else self.selected
        self._on_moved(Place(self._place.name, batch, self.since, self._state.state, self._state.key))

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
            self._moved()
            if self.following:
                await self.update(self._snapshot, self._marks)

    def _show_facts(self) -> None:
        by_number = {int(batch.batch_id): batch for batch in self._snapshot.batches}
        batch, other = (by_number.get(-1 if number is None else number) for number in (self.selected, self.since))
        self._compare.set_text("Compare" if self.since is None else f"Compared with {self.since}")
        self._batch.show_batch(self._snapshot, self.selected, self.since)
        self._facts.clear()
        with self._facts:
            if batch is not None:
                self._build_facts(batch, "data-batch")
            if other is not None and other is not batch:
                self._build_facts(other, "data-other")

    def _build_facts(self, batch: Batch, attribute: str) -> None:
        record = self._snapshot.progress.get(batch.batch_id)
        took_ms = record.duration_ms if record and record.duration_ms else batch.duration_ms
        with ui.element("div").classes("hw-facts-row"):
            mark(ui.label(f"batch {batch.batch_id}").classes("hw-batch"), attribute, batch.batch_id)
            for name in self._snapshot.kept.get(batch.batch_id, ()):
                mark(chip(f"kept as {name}", "good"), "data-kept", name)
            if batch.can_rewind_to:
                chip("can be rewound to", "good")
            else:
                chip(f"cannot be rewound to: {batch.why_not}", "dull")
            for name, text in (
                ("planned", format_time(batch.planned_at_ms)),
                ("took", format_duration(took_ms)),
                ("rows", "-" if batch.rows is None else f"{batch.rows:,}"),
                ("read", offset_ranges(batch.sources)),
                ("watermark", format_time(batch.watermark_ms)),
            ):
                with ui.element("span").classes("hw-fact"):
                    ui.label(name).classes("hw-fact-name")
                    ui.label(text)
            for event in self._marks.get(batch.batch_id, ())[-MOST_EVENTS:]:
                kind = "bad" if event.label == "failure" else "dull"
                mark(chip(str(event), kind).classes("hw-event"), "data-event", event.label)


class BatchPane:
    """Two charts about the selected batch: the phases that it took, and its state by partition."""

    def build(self) -> None:
        with ui.element("div").classes("hw-charts"):
            with panel("Duration", about="phases of the batch, and the median of those before it") as card:
                self._phases = ui.echart({"series": []}, renderer="svg").classes("hw-chart")
                save_as_png(card, self._phases, "Duration")
                self._phases_text = ui.label().classes("hw-explanation").props("data-phases")
            with panel("Partitions", about="rows of the state in each") as self._partitions_panel:
                self._partitions = ui.echart({"series": []}, renderer="svg").classes("hw-chart")
                save_as_png(self._partitions_panel, self._partitions, "Partitions")
                self._partitions_text = ui.label().classes("hw-explanation").props("data-skew")

    def show_batch(self, snapshot: Snapshot, batch: int | None, since: int | None) -> None:
        """Show the phases of a batch, beside those of another one."""
        found = None if batch is None else compare_phases(snapshot.progress, batch, since)
        self._phases_text.set_text(UNKNOWN if found is None else str(found))
        self._phases.set_visibility(found is not None)
        if found is not None:
            charts.replace(self._phases, charts.phases(found))

    def show_state(self, view: StateView | JobStateView | None) -> None:
        """Show the partitions of a state, once it was read."""
        rows = view.partition_rows if isinstance(view, StateView) else {}
        about = f"Batch {view.batch}: " if isinstance(view, StateView) else ""
        self._partitions_text.set_text(f"{about}{explain_skew(rows)}" if rows else "This batch has no state to show.")
        self._partitions.set_visibility(bool(rows))
        if rows:
            charts.replace(self._partitions, charts.partition_rows(rows))
