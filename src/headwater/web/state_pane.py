"""The state as of a batch, one page of rows at a time, with the changes; and the history of a selected key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import events, ui

from headwater.core.text import count
from headwater.statefiles.stores import StateTarget
from headwater.views.page_state import JobStateView, PageRequest, StatePage, StateView, shorten_times
from headwater.web import charts
from headwater.web.slow_runs import SlowRuns
from headwater.web.state_cache import StateCache
from headwater.web.widgets import placeholder, replace_with_error

PAGE_ROWS, MAX_PAGE_ROWS = 25, 100
MAX_STEPS = 60
# A larger state is shown first and compared with the previous batch afterwards.
MAX_ROWS_COMPARED_FIRST = 50_000
BODY = """
<q-tr :props="props" :class="'hw-row hw-row-' + (props.row.change || 'same')" tabindex="0"
      @click="$parent.$emit('pick', props.row.id)" @keydown.enter="$parent.$emit('pick', props.row.id)">
  <q-td v-for="col in props.cols" :key="col.name" :props="props">
    <span v-if="col.name === 'change'" class="hw-mark"
    >{{ {added: '+', removed: '\\u2212', changed: '~'}[props.row.change] || '' }}</span>
    <template v-else>
      <span v-if="props.row[col.name].was !== null" class="hw-was">{{ props.row[col.name].was }}</span>
      <span :class="{'hw-now': props.row[col.name].was !== null, 'hw-null': props.row[col.name].now === null}"
      >{{ props.row[col.name].now === null ? 'null' : props.row[col.name].now }}</span>
    </template>
  </q-td>
</q-tr>
"""


class StatePane:
    """The state pane of one reader. It reads in other threads, and drops a result if another batch was selected since."""

    def __init__(
        self,
        cache: StateCache,
        on_shown: Callable[[StateView | JobStateView | None], None],
        on_moved: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._on_shown = on_shown
        self._on_moved = on_moved
        self._since: int | None = None
        self.state: str | None = None
        """The store or variable that the reader chose."""
        self.key: Mapping[str, str | None] | None = None
        """The key whose history is shown."""
        self._batch: int | None = None
        self._newest = 0
        self._targets: list[StateTarget] = []
        self._target: StateTarget | None = None
        self._view: StateView | JobStateView | None = None
        self._shown: StateView | JobStateView | None = None
        """What the rows of the table belong to."""
        self._is_reading = False
        self._page = StatePage([], 0)
        self._paging: dict[str, Any] = {"page": 1, "rowsPerPage": PAGE_ROWS, "sortBy": None, "descending": False}
        self._search = ""
        self._only_changes = False
        self._as_job_sees_it = False
        self._request = 0
        self._job_views = SlowRuns()
        self._throttled_until = 0.0

    def build(self) -> None:
        self._heading = ui.label().classes("hw-title").props("data-shown aria-live=polite")
        with ui.element("div").classes("hw-state"):
            with ui.element("div").classes("hw-state-left"):
                self._build_controls()
                self._problem = ui.element("div")
                self._table = self._build_table()
            self._key = ui.element("div").classes("hw-key")
            with self._key:
                placeholder("Select a row to see the history of its key.", "show_chart")

    def _build_controls(self) -> None:
        with ui.element("div").classes("hw-controls"):
            self._target_select = ui.select([], on_change=self._target_changed)
            self._target_select.props("dense outlined options-dense").classes("hw-target").set_visibility(False)
            ui.input(placeholder="search all columns", on_change=self._search_changed).props(
                'dense outlined clearable debounce=300 aria-label="search"'
            ).classes("hw-search")
            self._changes_switch = ui.switch("only changes", on_change=self._only_changes_changed)
            self._view_switch = ui.switch("as the job sees it", on_change=self._job_view_changed)
            self._view_switch.set_visibility(False)
            self._spinner = ui.spinner(size="1.2em")
            self._spinner.set_visibility(False)
            ui.space()
            ui.button(icon="download", on_click=self._download).props(
                'flat round dense size=sm aria-label="download these rows as CSV"'
            )
            self._summary = ui.label().classes("hw-about").props('data-summary aria-live="polite"')

    def _build_table(self) -> ui.table:
        table = ui.table(rows=[], columns=[], row_key="id", pagination={**self._paging, "rowsNumber": 0})
        table.props('flat dense binary-state-sort :rows-per-page-options="[10,25,50,100]"').classes("hw-table")
        table.add_slot("body", BODY)
        table.add_slot("no-data", '<div class="hw-placeholder">no rows</div>')
        table.on("request", self._requested)
        table.on("pick", self._picked)
        table.set_visibility(False)
        return table

    @property
    def target(self) -> StateTarget | None:
        """The store or variable that is shown."""
        return self._target

    @property
    def is_throttled(self) -> bool:
        """Whether the last read took so long that the newest batch should not be read yet just to follow it."""
        return time.monotonic() < self._throttled_until

    async def show(self, batch: int, newest: int, since: int | None = None) -> None:
        """Show the state as of a batch, compared with another one. ``newest`` is the last batch of key histories."""
        self._batch, self._newest, self._since = batch, newest, since
        self._request += 1
        request = self._request
        self._spinner.set_visibility(True)
        self._is_reading = True
        self._name_shown()
        self._view_switch.set_visibility(self._cache.has_job_view)
        started = time.monotonic()
        try:
            view = await self._read_view(batch, request)
            if view is not None and view.total <= MAX_ROWS_COMPARED_FIRST:
                await asyncio.to_thread(self._cache.compare, view, lambda: request == self._request)
        except Exception as error:
            if request == self._request:
                self._fail(error)
            return
        if request != self._request:
            return
        took = time.monotonic() - started
        self._throttled_until = time.monotonic() + (4 * took if took > 1 else 0)
        self._view, self._is_reading = view, False
        self._show_targets()
        self._on_shown(view)
        await self._show_rows()
        if view is not None and not view.is_compared and request == self._request:
            await self._compare(view)

    def _name_shown(self) -> None:
        """Name the batch whose state the table shows. While another one is read, that is still the last one."""
        view = self._shown
        text = "" if view is None else f"State as of batch {view.batch}"
        if isinstance(view, StateView) and view.before is not None:
            text += f", changes since {view.before}"
        is_stale = self._is_reading and (view is None or view.batch != self._batch)
        if is_stale:
            text = " · ".join(filter(None, [text, f"reading batch {self._batch} ..."]))
        self._heading.set_text(text)
        self._table.classes(add="hw-stale" if is_stale else None, remove=None if is_stale else "hw-stale")

    async def _read_view(self, batch: int, request: int) -> StateView | JobStateView | None:
        if self._as_job_sees_it:
            return await self._job_views.run(lambda: request == self._request, self._cache.job_view, batch)
        return await asyncio.to_thread(self._read, batch, request)

    def _read(self, batch: int, request: int) -> StateView | None:
        if request != self._request:  # another batch was selected while this one waited for a thread
            return None
        self._targets = self._cache.targets(batch)
        if not self._targets:
            return None
        wanted = self._target.label if self._target else self.state
        same = [target for target in self._targets if target.label == wanted]
        self._target = (same or self._targets)[0]
        since = self._since if self._since != batch else None
        return self._cache.view(self._target, batch, since)

    async def _compare(self, view: StateView | JobStateView) -> None:
        """Mark the changes in a large state that is already shown."""
        self._spinner.set_visibility(True)
        try:
            await asyncio.to_thread(self._cache.compare, view, lambda: view is self._view)
        except Exception as error:
            self._fail(error)
            return
        if view is self._view:
            await self._show_rows()

    def _fail(self, error: Exception) -> None:
        self._view = self._shown = None
        self._is_reading = False
        self._name_shown()
        self._on_shown(None)
        self._spinner.set_visibility(False)
        self._table.set_visibility(False)
        self._summary.set_text("")
        replace_with_error(self._problem, error)

    def _show_targets(self) -> None:
        labels = [target.label for target in self._targets]
        if self._target_select.options != labels:
            self._target_select.set_options(labels, value=self._target.label if self._target else None)
        self._target_select.set_visibility(len(labels) > 1 and not self._as_job_sees_it)
        self._changes_switch.set_visibility(not self._as_job_sees_it)

    async def _target_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        chosen = [target for target in self._targets if target.label == event.value]
        if chosen and chosen[0] != self._target and self._batch is not None:
            self._target, self.state = chosen[0], chosen[0].label
            self._on_moved()
            await self.show(self._batch, self._newest, self._since)

    async def _search_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._search = str(event.value or "")
        self._paging["page"] = 1
        await self._show_rows()

    async def _only_changes_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._only_changes = bool(event.value)
        self._paging["page"] = 1
        await self._show_rows()

    async def _job_view_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._as_job_sees_it = bool(event.value)
        self._paging |= {"page": 1, "sortBy": None}
        if self._batch is not None:
            await self.show(self._batch, self._newest, self._since)

    async def _requested(self, event: events.GenericEventArguments) -> None:
        requested = event.args["pagination"]
        self._paging = {name: requested.get(name) for name in self._paging}
        await self._show_rows()

    async def _show_rows(self) -> None:
        view = self._view
        self._problem.clear()
        self._table.set_visibility(view is not None)
        if view is None:
            self._shown = None
            self._name_shown()
            self._spinner.set_visibility(False)
            with self._problem:
                placeholder("This query has no state.", "inbox")
            return
        self._spinner.set_visibility(True)
        page = await asyncio.to_thread(view.page, self._wanted())
        if view is self._view:
            self._spinner.set_visibility(False)
            self._page = page
            self._fill(view)

    def _wanted(self) -> PageRequest:
        size = min(max(int(self._paging["rowsPerPage"] or MAX_PAGE_ROWS), 1), MAX_PAGE_ROWS)
        return PageRequest(
            start=(max(int(self._paging["page"]), 1) - 1) * size,
            size=size,
            search=self._search,
            order_by=self._paging["sortBy"],
            descending=bool(self._paging["descending"]),
            only_changes=self._only_changes,
        )

    async def _download(self) -> None:
        view = self._view
        if view is not None:
            content = await asyncio.to_thread(view.csv, self._wanted())
            ui.download.content(content, f"state-at-{view.batch}.csv", "text/csv")

    def _fill(self, view: StateView | JobStateView) -> None:
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
        self._shown = view
        self._name_shown()
        self._table.pagination = {**self._paging, "rowsNumber": self._page.matching}
        found = [f"{view.counts[kind]:,} {kind}" for kind in ("added", "changed", "removed") if kind in view.counts]
        shown = f"{self._page.matching:,} of " if self._page.matching != view.total and not self._only_changes else ""
        parts = [f"batch {view.batch}", f"{shown}{count(view.total, 'row')}", *found]
        self._summary.set_text(" \u00b7 ".join(parts))

    async def _picked(self, event: events.GenericEventArguments) -> None:
        # The browser sends only the number of a row. Its key is looked up here.
        row = next((row for row in self._page.rows if row["id"] == event.args), None)
        if row is not None and row["key"]:
            await self.open_key(row["key"])

    async def open_key(self, key: Mapping[str, str | None]) -> None:
        """Show the history of a key."""
        if self._target is None:
            return
        self.key = key
        self._on_moved()
        self._key.clear()
        with self._key:
            ui.spinner()
        self._key.run_method("scrollIntoView", {"block": "nearest", "behavior": "smooth"})
        try:
            timeline = await asyncio.to_thread(self._cache.key_timeline, self._target, dict(key), self._newest)
        except Exception as error:
            replace_with_error(self._key, error)
            return
        self._key.clear()
        with self._key:
            ui.label(" \u00b7 ".join(shorten_times(text) or "null" for text in key.values())).classes("hw-key-name")
            if timeline.numbers:
                ui.echart(charts.key_history(timeline), renderer="svg").classes("hw-key-chart")
            with ui.element("div").classes("hw-steps"):
                for batch, values in reversed(timeline.steps[-MAX_STEPS:]):
                    with ui.element("div").classes("hw-step"):
                        ui.label(str(batch)).classes("hw-step-batch")
                        ui.label(values)
