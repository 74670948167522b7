"""A fork and its original on one time axis, on the page of either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import events, ui

from headwater.views.fork_comparison import MEASURES, ComparedStream, ForkComparison, compare_fork
from headwater.web import charts, timeline_charts
from headwater.web.relatives import Relative
from headwater.web.watch import Snapshot
from headwater.web.widgets import panel, save_as_png


class ForkPane:
    """The pane of one reader; invisible for a checkpoint without relatives. ``on_pick`` selects a batch of the page."""

    def __init__(self, name: str, on_pick: Callable[[int], None]) -> None:
        self._name = name
        self._on_pick = on_pick
        self._relatives: Sequence[Relative] = ()
        self._chosen: str | None = None
        self._measure = next(iter(MEASURES))
        self._shown: tuple[object, ...] = ()
        self._comparison: ForkComparison | None = None
        self._snapshot = Snapshot()

    def build(self) -> None:
        with panel("Fork and original", about="on one time axis (UTC)", classes="hw-wide") as self._panel:
            with ui.element("div").classes("hw-controls"):
                self._select = ui.select([], on_change=self._choose).props(
                    'dense outlined options-dense aria-label="compared stream"'
                )
                ui.toggle(list(MEASURES), value=self._measure, on_change=self._choose_measure).props(
                    'dense no-caps flat size=sm toggle-color=primary aria-label="what to compare"'
                )
            self._chart = ui.echart({"series": []}, on_point_click=self._clicked, renderer="svg").classes(
                "hw-fork-chart"
            )
            save_as_png(self._panel, self._chart, "Fork and original")
            self._text = ui.label().classes("hw-explanation").props("data-fork")
        self._panel.set_visibility(False)

    def update(self, snapshot: Snapshot, relatives: Sequence[Relative]) -> None:
        """Draw the relatives again if the checkpoint or one of them has changed."""
        shown = (snapshot.version, *((one.name, one.snapshot.version) for one in relatives))
        if shown == self._shown:
            return
        self._shown, self._snapshot, self._relatives = shown, snapshot, relatives
        names = [one.name for one in relatives]
        if self._select.options != names:
            self._chosen = self._chosen if self._chosen in names else (names[0] if names else None)
            self._select.set_options(names, value=self._chosen)
        self._select.set_visibility(len(names) > 1)
        self._draw()

    def _choose(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._chosen = event.value
        self._draw()

    def _choose_measure(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._measure = event.value
        self._draw()

    def _draw(self) -> None:
        relative = next((one for one in self._relatives if one.name == self._chosen), None)
        self._panel.set_visibility(relative is not None)
        if relative is None:
            return
        own = ComparedStream(self._name, self._snapshot.batches, self._snapshot.progress)
        other = ComparedStream(relative.name, relative.snapshot.batches, relative.snapshot.progress)
        original, fork = (other, own) if relative.is_original else (own, other)
        self._comparison = compare_fork(original, fork, relative.at, relative.forked_at_ms)
        self._text.set_text(self._comparison.text)
        charts.replace(self._chart, timeline_charts.fork_timeline(self._comparison, self._measure))

    def _clicked(self, event: events.EChartPointClickEventArguments) -> None:
        compared = self._comparison
        if compared is None or event.series_name != self._name:
            return
        found = compared.original_points if compared.original == self._name else compared.fork_points
        if 0 <= event.data_index < len(found):
            self._on_pick(found[event.data_index].last)
