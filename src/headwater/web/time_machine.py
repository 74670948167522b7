"""The lower half of the page: a slider through the batches, the state as it was, what changed, and one key's history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from nicegui import events, ui

from headwater.core.errors import HeadwaterError, Surprise
from headwater.statefiles.stores import StateTarget
from headwater.views.batch_table import reading
from headwater.views.page_state import StatePage, StateView
from headwater.views.words import count, moment, span
from headwater.web import charts
from headwater.web.pieces import chip, nothing, panel, show_error
from headwater.web.state_cache import StateCache
from headwater.web.watch import Snapshot

PAGE_ROWS = 25
BODY = """
<q-tr :props="props" :class="'hw-row hw-row-' + (props.row.change || 'same')" tabindex="0"
      @click="$parent.$emit('pick', props.row.id)" @keydown.enter="$parent.$emit('pick', props.row.id)">
  <q-td v-for="col in props.cols" :key="col.name" :props="props">
    <span v-if="col.name === 'change'" class="hw-mark"
    >{{ {added: '+', removed: '\u2212', changed: '~'}[props.row.change] || '' }}</span>
    <template v-else>
      <span v-if="props.row[col.name].was !== null" class="hw-was">{{ props.row[col.name].was }}</span>
      <span :class="{'hw-now': props.row[col.name].was !== null, 'hw-null': props.row[col.name].now === null}"
      >{{ props.row[col.name].now === null ? 'null' : props.row[col.name].now }}</span>
    </template>
  </q-td>
</q-tr>
"""


class TimeMachine:
    """Built once for each reader. ``selected`` is the batch that he looks at; he follows the newest until he moves."""

    def __init__(self, cache: StateCache, on_select: Callable[[int | None], None]) -> None:
        self._cache = cache
        self._on_select = on_select
        self.selected: int | None = None
        self.following = True
        self._snapshot = Snapshot()
        self._targets: list[StateTarget] = []
        self._target: StateTarget | None = None
        self._view: StateView | None = None
        self._page = StatePage([], 0)
        self._paging: dict[str, Any] = {"page": 1, "rowsPerPage": PAGE_ROWS, "sortBy": None, "descending": False}
        self._search = ""
        self._only_changes = False
        self._asked = 0
        self._not_before = 0.0

    def build(self, actions: Callable[[], None]) -> None:
        with panel("Time machine", classes="hw-wide"):
            with ui.element("div").classes("hw-slider-row"):
                ui.button(icon="chevron_left", on_click=lambda: self.step(-1)).props(
                    'flat round dense aria-label="batch before"'
                )
                self._slider = (
                    ui.slider(min=0, max=0, value=0)
                    .props('snap label-always=false aria-label="batch"')
                    .classes("hw-slider")
                    .on("update:model-value", self._slid, throttle=0.12, leading_events=True, trailing_events=True)
                )
                ui.button(icon="chevron_right", on_click=lambda: self.step(1)).props(
                    'flat round dense aria-label="batch after"'
                )
                self._follow = ui.switch("follow", value=True, on_change=self._follow_changed)
                actions()
            self._facts = ui.element("div").classes("hw-facts")
            with ui.element("div").classes("hw-state"):
                with ui.element("div").classes("hw-state-left"):
                    self._build_controls()
                    self._problem = ui.element("div")
                    self._table = self._build_table()
                with ui.element("div").classes("hw-state-right"):
                    self._key_panel = ui.element("div").classes("hw-key")
                    with self._key_panel:
                        nothing("Pick a row to see its key's history.", "show_chart")

    def _build_controls(self) -> None:
        with ui.element("div").classes("hw-controls"):
            self._target_select = (
                ui.select([], on_change=self._target_changed).props("dense outlined options-dense").classes("hw-target")
            )
            self._target_select.set_visibility(False)
            ui.input(placeholder="search all columns", on_change=self._search_changed).props(
                'dense outlined clearable debounce=300 aria-label="search"'
            ).classes("hw-search")
            ui.switch("only changes", on_change=self._only_changes_changed)
            self._spinner = ui.spinner(size="1.2em")
            self._spinner.set_visibility(False)
            ui.space()
            self._summary = ui.label().classes("hw-about").props('data-summary aria-live="polite"')

    def _build_table(self) -> ui.table:
        table = ui.table(rows=[], columns=[], row_key="id", pagination={**self._paging, "rowsNumber": 0})
        table.props('flat dense binary-state-sort :rows-per-page-options="[10,25,50,100]"').classes("hw-table")
        table.add_slot("body", BODY)
        table.add_slot("no-data", '<div class="hw-nothing">no rows</div>')
        table.on("request", self._requested)
        table.on("pick", self._picked)
        return table

    async def update(self, snapshot: Snapshot) -> None:
        """Bring it up to a snapshot: the slider grows, and follows if it is to."""
        self._snapshot = snapshot
        committed = snapshot.committed
        if not committed:
            self._facts.clear()
            with self._facts:
                nothing("No batch is committed yet: the state appears with the first one.")
            self._table.set_visibility(False)
            return
        if self.following or self.selected not in committed:
            nearest = (
                committed[-1] if self.following else min(committed, key=lambda held: abs(held - (self.selected or 0)))
            )
            self._move_to(nearest)
        self._slider.props(f"min=0 max={len(committed) - 1}")
        assert self.selected is not None
        self._slider.set_value(committed.index(self.selected))
        if self.following and time.monotonic() < self._not_before and self._view is not None:
            return
        await self.show_state()

    def step(self, by: int) -> None:
        """One batch to the left or to the right."""
        committed = self._snapshot.committed
        if self.selected in committed:
            place = min(max(committed.index(self.selected) + by, 0), len(committed) - 1)
            self.go_to(committed[place])

    def go_to(self, batch: int) -> None:
        """Look at a batch; whoever goes to one does not follow any more, except to the newest."""
        committed = self._snapshot.committed
        if batch not in committed:
            return
        self._follow.set_value(batch == committed[-1] and self.following)
        self.following = bool(self._follow.value)
        self._move_to(batch)
        self._slider.set_value(committed.index(batch))
        ui.timer(0, self.show_state, once=True)

    def _move_to(self, batch: int) -> None:
        self.selected = batch
        self._on_select(batch)
        self._show_facts()

    def _slid(self, event: events.GenericEventArguments) -> None:
        committed = self._snapshot.committed
        place = int(event.args) if isinstance(event.args, int | float) else -1
        if 0 <= place < len(committed) and committed[place] != self.selected:
            self._follow.set_value(False)
            self.go_to(committed[place])

    async def _follow_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self.following = bool(event.value)
        if self.following:
            await self.update(self._snapshot)

    async def _target_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        chosen = [target for target in self._targets if target.label == event.value]
        if chosen and chosen[0] != self._target:
            self._target = chosen[0]
            await self.show_state()

    async def _search_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._search = str(event.value or "")
        self._paging["page"] = 1
        await self.show_rows()

    async def _only_changes_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._only_changes = bool(event.value)
        self._paging["page"] = 1
        await self.show_rows()

    async def _requested(self, event: events.GenericEventArguments) -> None:
        wished = event.args["pagination"]
        self._paging = {name: wished.get(name) for name in self._paging}
        await self.show_rows()

    def _show_facts(self) -> None:
        batch = next((held for held in self._snapshot.batches if held.batch_id == self.selected), None)
        if batch is None:
            return
        self._facts.clear()
        with self._facts:
            ui.label(f"batch {batch.batch_id}").classes("hw-batch").props(f'data-batch="{batch.batch_id}"')
            if batch.can_rewind_to:
                chip("can be rewound to", "good")
            else:
                chip(f"cannot be rewound to: {batch.why_not}", "dull")
            for name, text in (
                ("planned", moment(batch.planned_at_ms)),
                ("took", span(batch.duration_ms)),
                ("read", "; ".join(reading(source) for source in batch.sources) or "-"),
                ("watermark", moment(batch.watermark_ms)),
            ):
                with ui.element("span").classes("hw-fact"):
                    ui.label(name).classes("hw-fact-name")
                    ui.label(text)

    async def show_state(self) -> None:
        """Read the state of the selected batch and show it; an older question that is answered late is dropped."""
        batch = self.selected
        if batch is None:
            return
        self._asked += 1
        asked = self._asked
        self._spinner.set_visibility(True)
        began = time.monotonic()
        try:
            view = await asyncio.to_thread(self._read, batch)
        except HeadwaterError as error:
            if asked == self._asked:
                self._fail(error)
            return
        except Exception as error:
            if asked == self._asked:
                self._fail(Surprise(error))
            return
        if asked != self._asked:
            return
        # Following a huge state must not fill the machine with reading it.
        self._not_before = time.monotonic() + 4 * (time.monotonic() - began) - 1
        self._view = view
        self._show_targets()
        await self.show_rows()

    def _read(self, batch: int) -> StateView | None:
        self._targets = self._cache.targets(batch)
        if not self._targets:
            return None
        same = [target for target in self._targets if self._target and target.label == self._target.label]
        self._target = (same or self._targets)[0]
        return self._cache.view(self._target, batch)

    def _fail(self, error: HeadwaterError) -> None:
        self._spinner.set_visibility(False)
        self._table.set_visibility(False)
        self._summary.set_text("")
        self._problem.clear()
        with self._problem:
            show_error(error)

    def _show_targets(self) -> None:
        labels = [target.label for target in self._targets]
        if self._target_select.options != labels:
            self._target_select.set_options(labels, value=self._target.label if self._target else None)
        self._target_select.set_visibility(len(labels) > 1)

    async def show_rows(self) -> None:
        view = self._view
        self._problem.clear()
        self._table.set_visibility(view is not None)
        if view is None:
            self._spinner.set_visibility(False)
            with self._problem:
                nothing("This query keeps no state.", "inbox")
            return
        self._spinner.set_visibility(True)
        size = min(max(int(self._paging["rowsPerPage"] or PAGE_ROWS), 1), 100)
        try:
            self._page = await asyncio.to_thread(
                view.page,
                start=(max(int(self._paging["page"]), 1) - 1) * size,
                size=size,
                search=self._search,
                order_by=self._paging["sortBy"],
                descending=bool(self._paging["descending"]),
                only_changes=self._only_changes,
            )
        finally:
            self._spinner.set_visibility(False)
        if view is not self._view:
            return
        self._fill(view)

    def _fill(self, view: StateView) -> None:
        columns: list[dict[str, Any]] = [{"name": "change", "label": "", "field": "change", "align": "center"}]
        columns += [
            {
                "name": column.field,
                "label": column.name,
                "field": column.field,
                "align": "right" if column.is_number else "left",
                "sortable": True,
                "headerClasses": "hw-key-column" if column.is_key else "",
            }
            for column in view.columns
        ]
        if self._table.columns != columns:
            self._table.columns = columns
        self._table.rows = self._page.rows
        self._table.pagination = {**self._paging, "rowsNumber": self._page.matching}
        changes = " ".join(
            f"{view.counts[kind]:,} {kind}" for kind in ("added", "changed", "removed") if kind in view.counts
        )
        shown = f"{self._page.matching:,} of " if self._page.matching != view.total and not self._only_changes else ""
        self._summary.set_text(f"{shown}{count(view.total, 'row')}" + (f" · {changes}" if changes else ""))

    async def _picked(self, event: events.GenericEventArguments) -> None:
        row = next((held for held in self._page.rows if held["id"] == event.args), None)
        if row is None or self._target is None or self.selected is None:
            return
        self._key_panel.clear()
        with self._key_panel:
            ui.spinner()
        try:
            lines = await asyncio.to_thread(self._cache.key, self._target, row["key"], self._snapshot.committed[-1])
        except HeadwaterError as error:
            self._key_panel.clear()
            with self._key_panel:
                show_error(error)
            return
        self._key_panel.clear()
        with self._key_panel:
            ui.label(" · ".join(str(text) for text in row["key"].values())).classes("hw-key-name")
            if lines.numbers:
                ui.echart(charts.key_history(lines), renderer="svg").classes("hw-key-chart")
            with ui.element("div").classes("hw-steps"):
                for batch, told in reversed(lines.steps[-60:]):
                    with ui.element("div").classes("hw-step"):
                        ui.label(str(batch)).classes("hw-step-batch")
                        ui.label(told)
