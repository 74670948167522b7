"""The page of all streams: a table, sorted by trouble, and a graph of those that feed each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nicegui import events, ui

from headwater.core.text import count
from headwater.fleet.fleet import FleetSnapshot, Stream
from headwater.views.fleet import StreamView, row_matches, streams_as_csv
from headwater.web import charts
from headwater.web.fleet_watch import FleetWatch
from headwater.web.frame import Frame
from headwater.web.gate import Visitor
from headwater.web.permalink import Place
from headwater.web.stream_graph import stream_graph
from headwater.web.widgets import help_dialog, listen_to_keys, panel, placeholder, save_as_png, show_error

STREAM_PATH = "/stream"
TICK_SECONDS = 0.5
# Ages change without a change on disk.
REDRAW_SECONDS = 5.0
PAGE_ROWS = 50
MOST_EDGES = 300
KEYS = {
    "\u2193 \u2191": "next and previous stream",
    "Enter": "open the stream",
    "/": "search",
    "?": "show these keys",
}
# A row that moves to another place loses the focus, so the last stream is remembered.
_FOCUS_STREAM = """
const links = [...document.querySelectorAll(".hw-stream-name")];
const name = link => link.closest("[data-stream]").dataset.stream;
const focused = links.indexOf(document.activeElement);
const at = focused >= 0 ? focused : links.findIndex(link => name(link) === window.hwStream);
const link = links[Math.min(Math.max(at + (%d), 0), links.length - 1)];
if (link) { window.hwStream = name(link); link.focus(); }
"""
BODY = """
<q-tr :props="props" :class="'hw-stream hw-stream-' + (props.row.severity || 'none')" :data-stream="props.row.name">
  <q-td v-for="col in props.cols" :key="col.name" :props="props">
    <template v-if="col.name === 'name'">
      <a class="hw-stream-name" :href="props.row.href" :title="props.row.location">{{ props.row.name }}</a>
      <small v-if="props.row.job && !props.row.name.endsWith(props.row.job)">{{ props.row.job }}</small>
      <div class="hw-trouble hw-trouble-below">{{ props.row.trouble }}</div>
    </template>
    <span v-else-if="col.name === 'status'" :class="'hw-chip hw-chip-' + props.row.kind" :title="props.row.how"
    >{{ props.row.status }}</span>
    <svg v-else-if="col.name === 'spark'" class="hw-spark" viewBox="0 0 96 22" role="img" aria-label="rows per batch"
    ><polyline v-if="props.row.spark" :points="props.row.spark" /></svg>
    <span v-else-if="col.name === 'batch'" :title="props.row.planned ? 'planned, not committed' : 'committed'"
    >{{ props.row.batch }}{{ props.row.planned ? '*' : '' }}</span>
    <span v-else-if="col.name === 'watermark'" :class="{'hw-alarm': props.row.hold}" :title="props.row.hold"
    >{{ props.row.watermark }}</span>
    <span v-else-if="col.name === 'state'">{{ props.row.state }} <small>{{ props.row.trend }}</small></span>
    <span v-else-if="col.name === 'trouble'" class="hw-trouble">{{ props.row.trouble }}</span>
    <span v-else>{{ props.row[col.name] }}</span>
  </q-td>
</q-tr>
"""
# Name, heading, whether it is a number, whether a narrow screen leaves it out.
COLUMNS: tuple[tuple[str, str, bool, bool], ...] = (
    ("name", "Stream", False, False),
    ("status", "Status", False, False),
    ("batch", "Batch", True, False),
    ("age", "Age", True, False),
    ("spark", "Rows", False, True),
    ("in", "In/s", True, True),
    ("out", "Capacity/s", True, True),
    ("lag", "Lag", True, False),
    ("watermark", "Watermark", True, True),
    ("state", "State", True, True),
    ("dropped", "Dropped", True, True),
    ("findings", "Checks", True, True),
    ("kept", "Kept", True, True),
    ("trouble", "Trouble", False, True),
)
_SORT: dict[str, Callable[[StreamView], Any]] = {
    "name": lambda view: view.stream.name,
    "status": lambda view: view.stream.activity(view.now_ms).status,
    "batch": lambda view: view.summary.last_batch,
    "age": lambda view: view.age_ms,
    "in": lambda view: view.summary.input_rate,
    "out": lambda view: view.summary.processed_rate,
    "lag": lambda view: view.summary.lag_rows,
    "watermark": lambda view: view.watermark_delay_ms,
    "state": lambda view: view.summary.state_rows,
    "dropped": lambda view: view.summary.dropped,
    "kept": lambda view: view.summary.points,
}


def stream_path(name: str) -> str:
    """Return the address of the page of a stream."""
    return f"{STREAM_PATH}{Place(name).query()}"


class FleetPage:
    """The page of all streams for one reader."""

    def __init__(self, watch: FleetWatch, visitor: Visitor) -> None:
        self._watch = watch
        self._frame = Frame(visitor)
        self._search = ""
        self._paging: dict[str, Any] = {"page": 1, "rowsPerPage": PAGE_ROWS, "sortBy": None, "descending": False}
        self._drawn: tuple[int, float] = (-1, 0.0)
        self._chart: ui.echart | None = None

    def build(self) -> None:
        self._frame.build(lambda: ui.label("all streams").classes("hw-checkpoint"))
        with ui.element("div").classes("hw-main hw-main-wide"):
            self._problems = ui.element("div")
            with panel("Streams", about="those with problems first; press ? for the keys", classes="hw-wide"):
                with ui.element("div").classes("hw-controls"):
                    self._counts = ui.label().classes("hw-about").props("data-counts aria-live=polite")
                    ui.space()
                    found = ui.input(placeholder="search names and troubles", on_change=self._search_changed)
                    found.props('dense outlined clearable debounce=300 aria-label="search"').classes("hw-search")
                    ui.button(icon="download", on_click=self._download).props(
                        'flat round dense size=sm aria-label="download the streams as CSV"'
                    )
                self._table = self._build_table()
            with panel("Streams that feed each other", about="from their records", classes="hw-wide") as self._graph:
                pass
            self._graph.set_visibility(False)
        actions: dict[str, Callable[[], None]] = {
            "ArrowDown": lambda: _focus_stream(1),
            "ArrowUp": lambda: _focus_stream(-1),
            "/": lambda: _focus(found),
            "?": help_dialog(KEYS).open,
        }
        listen_to_keys(lambda: actions)
        self._draw()
        ui.timer(TICK_SECONDS, self._tick)

    def _build_table(self) -> ui.table:
        columns = [
            {
                "name": name,
                "label": label,
                "field": name,
                "align": "right" if is_number else "left",
                "sortable": name in _SORT,
                "classes": _column_classes(name, is_optional=is_optional),
                "headerClasses": _column_classes(name, is_optional=is_optional),
            }
            for name, label, is_number, is_optional in COLUMNS
        ]
        table = ui.table(rows=[], columns=columns, row_key="id", pagination={**self._paging, "rowsNumber": 0})
        table.props('flat dense binary-state-sort :rows-per-page-options="[25,50,100,500]"').classes(
            "hw-table hw-streams"
        )
        table.add_slot("body", BODY)
        table.add_slot("no-data", '<div class="hw-placeholder">no streams</div>')
        table.on("request", self._requested)
        return table

    def _requested(self, event: events.GenericEventArguments) -> None:
        requested = event.args["pagination"]
        self._paging = {name: requested.get(name) for name in self._paging}
        self._draw()

    def _search_changed(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._search = str(event.value or "")
        self._paging["page"] = 1
        self._draw()

    def _download(self) -> None:
        """Download the streams that match the search, in the order of the table."""
        now_ms = time.time_ns() // 1_000_000
        views = self._sorted([StreamView(stream, now_ms) for stream in self._watch.snapshot.by_trouble(now_ms)])
        matching = [view for view in views if not self._search or row_matches(view.as_row(), self._search)]
        ui.download.content(streams_as_csv(matching), "streams.csv", "text/csv")

    def _node_clicked(self, event: events.EChartPointClickEventArguments) -> None:
        name = event.name or ""
        if self._watch.snapshot.get(name) is not None:
            ui.navigate.to(stream_path(name))

    def _tick(self) -> None:
        version, drawn_at = self._drawn
        if self._watch.snapshot.version != version or time.monotonic() - drawn_at >= REDRAW_SECONDS:
            self._draw()

    def _draw(self) -> None:
        snapshot, now_ms = self._watch.snapshot, time.time_ns() // 1_000_000
        is_new = snapshot.version != self._drawn[0]
        self._drawn = (snapshot.version, time.monotonic())
        views = [StreamView(stream, now_ms) for stream in snapshot.by_trouble(now_ms)]
        self._show_rows(self._sorted(views))
        self._counts.set_text(summary_text(snapshot, now_ms))
        if is_new:
            self._show_problems(snapshot)
            if not snapshot.is_loading:
                self._show_graph(snapshot, now_ms)

    def _sorted(self, views: list[StreamView]) -> list[StreamView]:
        key = _SORT.get(self._paging["sortBy"] or "")
        if key is None:
            return views
        known = [view for view in views if key(view) is not None]
        unknown = [view for view in views if key(view) is None]
        return sorted(known, key=key, reverse=bool(self._paging["descending"])) + unknown

    def _show_rows(self, views: list[StreamView]) -> None:
        matching = len(views)
        size = int(self._paging["rowsPerPage"] or matching or 1)
        start = (int(self._paging["page"]) - 1) * size
        if self._search:
            found = [row for row in (view.as_row() for view in views) if row_matches(row, self._search)]
            matching, rows = len(found), found[start : start + size]
        else:
            rows = [view.as_row() for view in views[start : start + size]]
        for row in rows:
            row["href"] = stream_path(row["name"])
        if self._table.rows != rows:
            self._table.rows = rows
        self._table.pagination = {**self._paging, "rowsNumber": matching}

    def _show_problems(self, snapshot: FleetSnapshot) -> None:
        self._problems.clear()
        with self._problems:
            for problem in (*snapshot.problems, *((self._watch.problem,) if self._watch.problem else ())):
                show_error(problem)
            if not snapshot.is_complete:
                placeholder("There are too many folders to search all of them. Name the ones with checkpoints.", "info")

    def _show_graph(self, snapshot: FleetSnapshot, now_ms: int) -> None:
        edges = snapshot.edges()[:MOST_EDGES]
        by_name = {stream.name: stream for stream in snapshot.streams}
        severities = {name: _severity(by_name[name], now_ms) for edge in edges for name in (edge.source, edge.target)}
        self._graph.set_visibility(bool(edges))
        if not edges:
            return
        options = stream_graph(edges, severities)
        rows = max((node["row"] for node in options["series"][0]["data"]), default=0) + 1
        chart = self._chart or self._add_chart()
        chart.style(f"height: {90 + 56 * rows}px !important")
        charts.replace(chart, options)

    def _add_chart(self) -> ui.echart:
        """Add the chart of the graph. A page without one does not load the library of charts, and appears sooner."""
        with self._graph:
            self._chart = ui.echart(stream_graph([], {}), on_point_click=self._node_clicked, renderer="svg")
        self._chart.classes("hw-graph")
        save_as_png(self._graph, self._chart, "Streams")
        return self._chart


def _column_classes(name: str, *, is_optional: bool) -> str:
    return f"hw-column-{name} hw-optional" if is_optional else f"hw-column-{name}"


def _focus_stream(step: int) -> None:
    """Move the focus to the next stream of the table (1), or to the previous one (-1)."""
    ui.run_javascript(_FOCUS_STREAM % step)


def _focus(element: ui.element) -> None:
    element.run_method("focus")


def _severity(stream: Stream, now_ms: int) -> str:
    troubles = stream.troubles(now_ms)
    if troubles and troubles[0].severity != "info":
        return troubles[0].severity
    return "running" if stream.activity(now_ms).is_running else "idle"


def summary_text(snapshot: FleetSnapshot, now_ms: int) -> str:
    """Return one line about all streams: how many there are, run, and are in trouble."""
    worst = [troubles[0].severity for stream in snapshot.streams if (troubles := stream.troubles(now_ms))]
    running = sum(stream.activity(now_ms).is_running for stream in snapshot.streams)
    parts = [count(len(snapshot.streams), "stream") + (" so far" if snapshot.is_loading else ""), f"{running} running"]
    for severity, noun in (("error", "errors"), ("warning", "warnings")):
        if number := sum(found == severity for found in worst):
            parts.append(f"{number} with {noun}")
    unchecked = sum(stream.checked is None for stream in snapshot.streams)
    return " · ".join([*parts, f"{unchecked} not checked yet"] if unchecked else parts)
