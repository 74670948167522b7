"""The findings of fsck, and the journal of changes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from nicegui import ui

from headwater.checkpoint.filetree import FileTree
from headwater.core.finding import Finding
from headwater.core.text import count, displayable
from headwater.guards.check import Connections, check_sources
from headwater.kafka.options import Connection
from headwater.timemachine.journal import Entry
from headwater.timemachine.tables import fsck
from headwater.views.formatting import format_time
from headwater.web.watch import Snapshot
from headwater.web.widgets import chip, placeholder, replace_with_error

MAX_FINDINGS = 200
CHIPS = {"error": "bad", "warning": "warn", "info": "dull"}


class FindingsPane:
    """The findings pane of one reader. It runs the checks when it is opened, because they take a while."""

    def __init__(self, connection: Connection | None = None) -> None:
        self._files: FileTree | None = None
        self._connections = {"": connection} if connection else {}
        self._is_checked = False

    def build(self) -> None:
        with ui.element("div").classes("hw-controls"):
            ui.button("check again", icon="refresh", on_click=self.check).props("flat dense no-caps size=sm")
            self._when = ui.label().classes("hw-about")
        self._found = ui.element("div").classes("hw-findings")

    def update(self, files: FileTree | None) -> None:
        self._files = files

    async def check_once(self) -> None:
        """Run the checks unless they have been run."""
        if not self._is_checked:
            await self.check()

    async def check(self) -> None:
        """Run the checks and show their findings."""
        if self._files is None:
            return
        self._is_checked = True
        self._when.set_text("checking ...")
        try:
            found = await asyncio.to_thread(page_findings, self._files, self._connections)
        except Exception as error:
            self._when.set_text("")
            replace_with_error(self._found, error)
            return
        self._show(found)

    def _show(self, found: list[Finding]) -> None:
        self._when.set_text(f"checked {format_time(int(time.time() * 1000))} UTC: {count(len(found), 'finding')}")
        self._found.clear()
        with self._found:
            if not found:
                placeholder("All checks passed.", "task_alt")
            for finding in found[:MAX_FINDINGS]:
                with ui.element("div").classes("hw-finding"):
                    chip(finding.severity, CHIPS[finding.severity])
                    ui.label(finding.code).classes("hw-finding-code")
                    ui.label(finding.message).classes("hw-finding-message")
                    ui.label(finding.path or "").classes("hw-about")


def page_findings(files: FileTree, connections: Connections) -> list[Finding]:
    """Return what fsck finds, in the checkpoint and in its sources, the worst first."""
    order = {"error": 0, "warning": 1, "info": 2}
    found = [*fsck(files), *check_sources(files, connections).findings]
    return sorted(found, key=lambda finding: order[finding.severity])


class JournalPane:
    """The journal of one reader: the changes that Headwater made to the checkpoint, newest first."""

    def __init__(self) -> None:
        self._shown: tuple[tuple[Entry, ...], dict[str, Any] | None] | None = None

    def build(self) -> None:
        self._list = ui.element("div").classes("hw-findings")

    def update(self, snapshot: Snapshot) -> None:
        if self._shown == (snapshot.journal, snapshot.origin):
            return
        self._shown = (snapshot.journal, snapshot.origin)
        self._list.clear()
        with self._list:
            if snapshot.origin:
                with ui.element("div").classes("hw-finding"):
                    chip("fork", "dull")
                    about = f"of {snapshot.origin.get('checkpoint')} at batch {snapshot.origin.get('at')}"
                    ui.label(displayable(about))
            if not snapshot.journal:
                placeholder("Headwater has made no changes to this checkpoint.", "history")
            for entry in reversed(snapshot.journal):
                with ui.element("div").classes("hw-finding"):
                    chip(entry.change.verb, "good" if entry.change.undoes else "warn")
                    ui.label(entry.change.about).classes("hw-finding-message")
                    by = entry.change.details.get("by")
                    ui.label(f"{format_time(entry.done_at_ms)} UTC" + (f", by {by}" if by else "")).classes("hw-about")
