"""Two charts about the selected batch: the phases that it took, and its state by partition."""

from __future__ import annotations

from nicegui import ui

from headwater.views.batch_phases import compare_phases
from headwater.views.page_state import JobStateView, StateView
from headwater.views.skew import explain_skew
from headwater.web import charts
from headwater.web.watch import Snapshot
from headwater.web.widgets import panel

UNKNOWN = "Known only for batches that were run by headwater run, or by a program with headwater.attach."


class BatchPane:
    """The charts of one reader."""

    def build(self) -> None:
        with ui.element("div").classes("hw-charts"):
            with panel("Duration", about="phases of the batch, and the median of those before it"):
                self._phases = ui.echart({"series": []}, renderer="svg").classes("hw-chart")
                self._phases_text = ui.label().classes("hw-explanation").props("data-phases")
            with panel("Partitions", about="rows of the state in each") as self._partitions_panel:
                self._partitions = ui.echart({"series": []}, renderer="svg").classes("hw-chart")
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
