"""The upper half of the page: figures, batches and charts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import events, ui

from headwater.views.batch_table import batches_as_csv
from headwater.views.page_events import Mark
from headwater.views.page_points import Point, merge_points, points, rewind_times_ms
from headwater.views.page_summary import Figure, explain_watermark, summary_figures
from headwater.web import charts, timeline_charts
from headwater.web.kafka_lag import KafkaLag
from headwater.web.table_lag import TableLag
from headwater.web.watch import Snapshot
from headwater.web.widgets import mark, panel, save_as_png

RANGES = {"60": 60, "300": 300, "all": 10**9}
EXPLAINED_BATCHES = 400
UNKNOWN = "Known only for batches that were run by headwater run."


class Overview:
    """The figures, batches and charts of one reader. Call ``update`` with each new snapshot."""

    def __init__(self, on_pick: Callable[[int], None], lag: KafkaLag) -> None:
        self._on_pick = on_pick
        self._lag = lag
        self._table_lag = TableLag()
        self._range = "60"
        self._points: list[Point] = []
        self._shown: list[Point] = []
        self._snapshot = Snapshot()
        self._selected: int | None = None
        self._marks: Mapping[int, Sequence[Mark]] = {}

    def build(self) -> None:
        with ui.element("div").classes("hw-figures"):
            self._figures = [_FigureCard() for _ in summary_figures((), {}, now_ms=0, lags={})]
        with panel("Batches", classes="hw-wide") as card:
            with ui.element("div").classes("hw-legend"):
                for kind, label in timeline_charts.KIND_LABELS.items():
                    with ui.element("span").classes("hw-legend-item"):
                        ui.element("i").style(f"background:{timeline_charts.KIND_COLORS[kind]}")
                        ui.label(label)
                ui.space()
                ui.button(icon="download", on_click=self._download).props(
                    'flat round dense size=sm aria-label="download the batches as CSV"'
                )
                ui.toggle(list(RANGES), value=self._range, on_change=self._choose_range).props(
                    'dense no-caps flat size=sm toggle-color=primary aria-label="how many batches"'
                )
            self._timeline = ui.echart(
                timeline_charts.timeline([], None, {}), on_point_click=self._clicked, renderer="svg"
            ).classes("hw-timeline")
        save_as_png(card, self._timeline, "Batches")
        with ui.element("div").classes("hw-charts"):
            self._rows = _ChartPanel("Input", "rows per batch, late and malformed ones, and duration")
            self._event_time = _ChartPanel("Event time", "and watermark (UTC)")
            self._state = _ChartPanel("State", "rows and bytes in memory")
            self._lag_chart = _ChartPanel("Kafka lag", "unread records when a batch was planned")

    def update(self, snapshot: Snapshot, selected: int | None, marks: Mapping[int, Sequence[Mark]]) -> None:
        self._snapshot, self._selected, self._marks = snapshot, selected, marks
        self._draw()
        self.tick()

    def select(self, batch: int | None) -> None:
        self._selected = batch
        self._draw_timeline()

    def tick(self) -> None:
        """Update what changes with time, even without a new snapshot."""
        snapshot, now_ms = self._snapshot, int(time.time() * 1000)
        where = (snapshot.job, snapshot.batches)
        lags = {**self._lag.by_source(*where), **self._table_lag.by_source(*where)}
        figures = summary_figures(snapshot.batches, snapshot.progress, now_ms=now_ms, lags=lags)
        for card, figure in zip(self._figures, figures, strict=True):
            card.show(figure)
        if self._lag.problem:
            self._lag_chart.explain(f"The current lag is unknown: {self._lag.problem}.")
        recent = self._points[-EXPLAINED_BATCHES:]
        running = snapshot.lease is not None
        self._event_time.explain(explain_watermark(recent, now_ms, running=running, hold=snapshot.hold))
        self._lag_chart.explain(self._explain_lag())

    async def _download(self) -> None:
        content = await asyncio.to_thread(batches_as_csv, self._snapshot.batches)
        ui.download.content(content, "batches.csv", "text/csv")

    def _choose_range(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._range = event.value
        self._draw()

    def _clicked(self, event: events.EChartPointClickEventArguments) -> None:
        if 0 <= event.data_index < len(self._shown) and self._shown[event.data_index].kind != "rewound":
            self._on_pick(self._shown[event.data_index].last)

    def _draw(self) -> None:
        snapshot, number = self._snapshot, RANGES[self._range]
        recent = snapshot.batches[-max(number, EXPLAINED_BATCHES) :]
        self._points = points(recent, snapshot.progress, rewind_times_ms(snapshot.journal))
        self._shown = merge_points(self._points[-number:])
        shown = [point for point in self._shown if point.kind != "rewound"]
        self._draw_timeline()
        self._rows.draw(charts.input_rows(shown))
        self._event_time.draw(charts.event_time(shown))
        known = any(point.state_rows is not None for point in shown)
        self._state.draw(charts.state_size(shown))
        self._state.explain("" if known or not shown else UNKNOWN)
        self._lag_chart.draw(charts.kafka_lag(shown))

    def _explain_lag(self) -> str:
        if self._lag.problem:
            return f"The current lag is unknown: {self._lag.problem}."
        if not self._shown or any(point.lag_rows is not None for point in self._shown):
            return ""
        return f"{UNKNOWN} Only Kafka sources have one for each batch."

    def _draw_timeline(self) -> None:
        charts.replace(
            self._timeline, timeline_charts.timeline(self._shown, self._selected, self._marks, self._snapshot.kept)
        )


class _FigureCard:
    def __init__(self) -> None:
        with ui.element("div").classes("hw-figure") as self._card:
            self._name = ui.label().classes("hw-figure-name")
            self._value = ui.label().classes("hw-figure-value")
            self._about = ui.label().classes("hw-figure-about")

    def show(self, figure: Figure) -> None:
        self._name.set_text(figure.name)
        self._value.set_text(figure.value)
        self._about.set_text(figure.about)
        alarm = "hw-alarming"
        self._card.classes(add=alarm if figure.alarming else None, remove=None if figure.alarming else alarm)
        mark(self._card, "data-figure", figure.name)


class _ChartPanel:
    def __init__(self, title: str, about: str) -> None:
        with panel(title, about=about) as card:
            self._chart = ui.echart({"series": []}, renderer="svg").classes("hw-chart")
            save_as_png(card, self._chart, title)
            self._explanation = ui.label().classes("hw-explanation")
            self._explanation.set_visibility(False)

    def draw(self, options: charts.Options) -> None:
        charts.replace(self._chart, options)

    def explain(self, text: str) -> None:
        self._explanation.set_text(text)
        self._explanation.set_visibility(bool(text))
