"""The upper half of the page: the figures, the batches, and the charts over them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nicegui import events, ui

from headwater.views.page_points import Point, bucketed, points, rewound
from headwater.views.page_summary import figures, watermark_story
from headwater.web import charts
from headwater.web.kafka_lag import KafkaLag
from headwater.web.pieces import panel
from headwater.web.watch import Snapshot

RANGES = {"60": 60, "300": 300, "all": 10**9}
FOR_THE_STORY = 400
UNKNOWN = "Known for batches that ran under headwater run."


class Overview:
    """Built once for each reader; ``update`` brings it up to a snapshot."""

    def __init__(self, on_pick: Callable[[int], None], lag: KafkaLag) -> None:
        self._on_pick = on_pick
        self._lag = lag
        self._range = "60"
        self._points: list[Point] = []
        self._shown: list[Point] = []
        self._snapshot = Snapshot()
        self._selected: int | None = None
        self._forks: dict[int, str] = {}

    def build(self) -> None:
        with ui.element("div").classes("hw-figures"):
            self._figures = [_Figure() for _ in figures((), {}, now_ms=0, lag_rows=None)]
        with panel("Batches", classes="hw-wide"):
            with ui.element("div").classes("hw-legend"):
                for kind, words in charts.KIND_WORDS.items():
                    with ui.element("span").classes("hw-legend-item"):
                        ui.element("i").style(f"background:{charts.KIND_COLOURS[kind]}")
                        ui.label(words)
                ui.space()
                ui.toggle(list(RANGES), value=self._range, on_change=self._choose_range).props(
                    'dense no-caps flat size=sm toggle-color=primary aria-label="how many batches"'
                )
            self._timeline = ui.echart(
                charts.timeline([], None, {}), on_point_click=self._clicked, renderer="svg"
            ).classes("hw-timeline")
        with ui.element("div").classes("hw-charts"):
            self._rows = _ChartPanel("Input", "rows a batch, late and malformed ones, and how long it took")
            self._event_time = _ChartPanel("Event time", "against the watermark (UTC)")
            self._state = _ChartPanel("State", "rows, and bytes in memory")
            self._lag_chart = _ChartPanel("Kafka lag", "records that were there and not read when a batch was planned")

    def update(self, snapshot: Snapshot, selected: int | None, forks: dict[int, str]) -> None:
        self._snapshot, self._selected, self._forks = snapshot, selected, forks
        self._draw()
        self.tick()

    def select(self, batch: int | None) -> None:
        self._selected = batch
        self._draw_timeline()

    def tick(self) -> None:
        """What moves with the clock alone."""
        snapshot, now_ms = self._snapshot, int(time.time() * 1000)
        lag = self._lag.rows(snapshot.job, snapshot.batches)
        for shown, figure in zip(
            self._figures, figures(snapshot.batches, snapshot.progress, now_ms=now_ms, lag_rows=lag), strict=True
        ):
            shown.show(figure.name, figure.value, figure.about, alarming=figure.alarming)
        story = watermark_story(self._points[-FOR_THE_STORY:], now_ms, running=snapshot.lease is not None)
        self._event_time.say(story)

    def _choose_range(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._range = event.value
        self._draw()

    def _clicked(self, event: events.EChartPointClickEventArguments) -> None:
        if 0 <= event.data_index < len(self._shown) and self._shown[event.data_index].kind != "rewound":
            self._on_pick(self._shown[event.data_index].last)

    def _draw(self) -> None:
        snapshot, wished = self._snapshot, RANGES[self._range]
        recent = snapshot.batches[-max(wished, FOR_THE_STORY) :]
        self._points = points(recent, snapshot.progress, rewound(snapshot.journal))
        self._shown = bucketed(self._points[-wished:])
        shown = [point for point in self._shown if point.kind != "rewound"]
        self._draw_timeline()
        self._rows.draw(charts.input_rows(shown))
        self._event_time.draw(charts.event_time(shown))
        known = any(point.state_rows is not None for point in shown)
        self._state.draw(charts.state_size(shown))
        self._state.say("" if known or not shown else UNKNOWN)
        behind = any(point.lag_rows is not None for point in shown)
        self._lag_chart.draw(charts.kafka_lag(shown))
        self._lag_chart.say("" if behind or not shown else f"{UNKNOWN} Only Kafka sources have a lag.")

    def _draw_timeline(self) -> None:
        _replace(self._timeline, charts.timeline(self._shown, self._selected, self._forks))


class _Figure:
    def __init__(self) -> None:
        with ui.element("div").classes("hw-figure") as self._card:
            self._name = ui.label().classes("hw-figure-name")
            self._value = ui.label().classes("hw-figure-value")
            self._about = ui.label().classes("hw-figure-about")

    def show(self, name: str, value: str, about: str, *, alarming: bool) -> None:
        self._name.set_text(name)
        self._value.set_text(value)
        self._about.set_text(about)
        self._card.classes(add="hw-alarming" if alarming else None, remove=None if alarming else "hw-alarming")
        self._card.props(f'data-figure="{name}"')


class _ChartPanel:
    def __init__(self, title: str, about: str) -> None:
        with panel(title, about=about):
            self._chart = ui.echart({"series": []}, renderer="svg").classes("hw-chart")
            self._story = ui.label().classes("hw-story")
            self._story.set_visibility(False)

    def draw(self, options: charts.Options) -> None:
        _replace(self._chart, options)

    def say(self, text: str) -> None:
        self._story.set_text(text)
        self._story.set_visibility(bool(text))


def _replace(chart: ui.echart, options: charts.Options) -> None:
    chart.options.clear()
    chart.options.update(options)
    chart.update()
