"""Rewind and undo from the page: the only part of it that changes a checkpoint. A read-only page does not load it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nicegui import ui

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.lease import refuse_if_held
from headwater.core.errors import ChangeRefused
from headwater.timemachine.rewind import RewindPlan
from headwater.timemachine.rewind_target import plan_rewind_to
from headwater.timemachine.undo import UndoPlan, plan_undo
from headwater.views.plans import rewind_text, undo_text
from headwater.web.gate import Visitor
from headwater.web.widgets import replace_with_error

Progress = Callable[[int, int], None]


class RewindChange:
    """A planned rewind. The reader confirms it by typing ``confirmation``."""

    def __init__(self, files: FileTree, to: int) -> None:
        refuse_if_held(files, f"cannot rewind to batch {to}")
        self.plan: RewindPlan = plan_rewind_to(files, to)
        self.plan.refuse_missing_input()
        self.confirmation = f"rewind to {to}"
        self.title = f"Rewind to batch {to}"
        self.lines = rewind_text(self.plan).lines()

    def apply(self, progress: Progress, by: str | None) -> str:
        self.plan.apply(progress=progress, by=by)
        return f"Done: batch {self.plan.next_batch} runs next."


class UndoChange:
    """A planned undo of the last change."""

    def __init__(self, files: FileTree) -> None:
        refuse_if_held(files, "cannot undo")
        self.plan: UndoPlan = plan_undo(files)
        self.confirmation = "undo"
        self.title = f"Undo the last {self.plan.undoes.change.verb}"
        self.lines = undo_text(self.plan).lines()

    def apply(self, progress: Progress, by: str | None) -> str:
        self.plan.apply(progress=progress, by=by)
        return f"Done: the {self.plan.undoes.change.verb} was undone."


Change = RewindChange | UndoChange


def refuse_ended(visitor: Visitor) -> None:
    """Raise ``ChangeRefused`` if the visitor has logged out, or lost the role, since the page was opened."""
    if not visitor.may_change or not visitor.is_current():
        raise ChangeRefused("logged-out", "the session has ended", remedy="reload the page and log in again")


class ChangeButtons:
    """The buttons for rewind and undo. ``files`` and ``selected`` are called when a button is pressed."""

    def __init__(
        self, files: Callable[[], FileTree | None], selected: Callable[[], int | None], visitor: Visitor
    ) -> None:
        self._files = files
        self._selected = selected
        self._visitor = visitor

    def build(self) -> None:
        ui.button("Rewind to here", icon="fast_rewind", on_click=self._rewind).props(
            "unelevated no-caps dense color=warning text-color=dark data-action=rewind"
        ).classes("hw-action")
        ui.button("Undo", icon="undo", on_click=self._undo).props("flat no-caps dense data-action=undo").classes(
            "hw-action"
        )

    async def _rewind(self) -> None:
        files, batch = self._files(), self._selected()
        if files is not None and batch is not None:
            await _ChangeDialog(lambda: RewindChange(files, batch), self._visitor).open()

    async def _undo(self) -> None:
        files = self._files()
        if files is not None:
            await _ChangeDialog(lambda: UndoChange(files), self._visitor).open()


class _ChangeDialog:
    """A dialog that shows a plan, asks for confirmation, applies the plan and shows its progress."""

    def __init__(self, plan: Callable[[], Change], visitor: Visitor) -> None:
        self._plan = plan
        self._visitor = visitor
        self._done = (0, 0)

    async def open(self) -> None:
        with ui.dialog().props("persistent") as self._dialog, ui.card().classes("hw-dialog"):
            self._body = ui.element("div").classes("hw-dialog-body")
        self._dialog.open()
        with self._body:
            ui.spinner()
        try:
            change = await asyncio.to_thread(self._plan)
        except Exception as error:
            self._refuse(error)
            return
        self._preview(change)

    def _preview(self, change: Change) -> None:
        self._body.clear()
        with self._body:
            ui.label(change.title).classes("hw-title")
            with ui.element("pre").classes("hw-plan").props("data-plan"):
                for line in change.lines:
                    warning = line.startswith("warning:")
                    ui.label(line).classes("hw-plan-line" + (" hw-plan-warning" if warning else ""))
            ui.label("Files are set aside, never deleted. Undo moves them back.").classes("hw-about")
            with ui.element("div").classes("hw-confirm"):
                typed = ui.input(f"type {change.confirmation} to confirm").props(
                    "dense outlined autofocus data-confirm"
                )
                go = ui.button(change.title, on_click=lambda: self._apply(change)).props(
                    "unelevated no-caps color=warning text-color=dark data-action=confirm"
                )
                go.bind_enabled_from(typed, "value", backward=lambda text: (text or "").strip() == change.confirmation)
                ui.button("Cancel", on_click=self._close).props("flat no-caps data-action=cancel")
            self._typed = typed

    async def _apply(self, change: Change) -> None:
        if (self._typed.value or "").strip() != change.confirmation:
            return
        self._body.clear()
        with self._body:
            ui.label(change.title).classes("hw-title")
            bar = ui.linear_progress(0, show_value=False).props("rounded color=warning")
            steps = ui.label("...").classes("hw-about")
            ui.timer(0.1, lambda: self._show_progress(bar, steps))
        try:
            refuse_ended(self._visitor)
            done = await asyncio.to_thread(change.apply, self._note_progress, self._visitor.name)
        except Exception as error:
            self._refuse(error)
        else:
            self._body.clear()
            with self._body:
                ui.label(change.title).classes("hw-title")
                ui.label(done).props("data-done")
                ui.button("Close", on_click=self._close).props("flat no-caps data-action=close")

    def _note_progress(self, done: int, of: int) -> None:
        self._done = (done, of)

    def _show_progress(self, bar: ui.linear_progress, steps: ui.label) -> None:
        done, of = self._done
        bar.set_value(done / of if of else 0)
        steps.set_text(f"{done:,} of {of:,} steps")

    def _refuse(self, error: Exception) -> None:
        replace_with_error(self._body, error)
        with self._body:
            ui.button("Close", on_click=self._close).props("flat no-caps data-action=close")

    def _close(self) -> None:
        self._dialog.close()
        self._dialog.delete()
