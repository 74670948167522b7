"""fsck's findings, and the journal of changes."""

from __future__ import annotations

import asyncio
import time

from nicegui import ui

from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.filetree import FileTree
from headwater.core.errors import HeadwaterError, Surprise
from headwater.core.finding import Finding
from headwater.timemachine.journal import Entry
from headwater.views.words import count, moment
from headwater.web.pieces import chip, nothing, show_error
from headwater.web.watch import Snapshot

MOST_FINDINGS = 200
CHIPS = {"error": "bad", "warning": "warn", "info": "dull"}


class FindingsPane:
    """Checks when somebody looks, not before: on a large checkpoint it takes a while."""

    def __init__(self) -> None:
        self._files: FileTree | None = None
        self._looked = False

    def build(self) -> None:
        with ui.element("div").classes("hw-controls"):
            ui.button("check again", icon="refresh", on_click=self.check).props("flat dense no-caps size=sm")
            self._when = ui.label().classes("hw-about")
        self._found = ui.element("div").classes("hw-findings")

    def update(self, files: FileTree | None) -> None:
        self._files = files

    async def look(self) -> None:
        if not self._looked:
            await self.check()

    async def check(self) -> None:
        if self._files is None:
            return
        self._looked = True
        self._when.set_text("checking ...")
        try:
            found = await asyncio.to_thread(_findings, self._files)
        except HeadwaterError as error:
            self._show([], error)
            return
        except Exception as error:
            self._show([], Surprise(error))
            return
        self._show(found, None)

    def _show(self, found: list[Finding], error: HeadwaterError | None) -> None:
        self._when.set_text(f"checked {moment(int(time.time() * 1000))} UTC: {count(len(found), 'finding')}")
        self._found.clear()
        with self._found:
            if error:
                show_error(error)
            elif not found:
                nothing("Every check is content.", "task_alt")
            for finding in found[:MOST_FINDINGS]:
                with ui.element("div").classes("hw-finding"):
                    chip(finding.severity, CHIPS[finding.severity])
                    ui.label(finding.code).classes("hw-finding-code")
                    ui.label(finding.message).classes("hw-finding-message")
                    ui.label(finding.path or "").classes("hw-about")


def _findings(files: FileTree) -> list[Finding]:
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(run_checks(Scene(files, int(time.time() * 1000))), key=lambda finding: order[finding.severity])


class JournalPane:
    def __init__(self) -> None:
        self._shown: tuple[Entry, ...] | None = None

    def build(self) -> None:
        self._list = ui.element("div").classes("hw-findings")

    def update(self, snapshot: Snapshot) -> None:
        if self._shown is not None and len(self._shown) == len(snapshot.journal):
            return
        self._shown = snapshot.journal
        self._list.clear()
        with self._list:
            if snapshot.origin:
                with ui.element("div").classes("hw-finding"):
                    chip("fork", "dull")
                    ui.label(f"of {snapshot.origin.get('checkpoint')} at batch {snapshot.origin.get('at')}")
            if not snapshot.journal:
                nothing("Nobody has changed this checkpoint.", "history")
            for entry in reversed(snapshot.journal):
                with ui.element("div").classes("hw-finding"):
                    chip(entry.change.verb, "good" if entry.change.undoes else "warn")
                    ui.label(entry.change.about).classes("hw-finding-message")
                    ui.label(f"{moment(entry.done_at_ms)} UTC").classes("hw-about")
