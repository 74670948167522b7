"""Find a key by a text in all batches whose state can be rebuilt, and the batches that changed it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from headwater.statefiles.stores import StateTarget
from headwater.views.key_search import FoundKey, KeySearch
from headwater.web.state_cache import StateCache
from headwater.web.widgets import panel, replace_with_error

SHOW_SECONDS = 0.4
MOST_BATCHES = 12


class KeySearchPane:
    """The search of one reader. Results appear while it runs, and a new search ends the one before.

    ``target`` returns the store or variable to search; ``on_key`` shows the history of a key, ``on_batch`` a batch.
    """

    def __init__(
        self,
        cache: StateCache,
        target: Callable[[], StateTarget | None],
        on_key: Callable[[Mapping[str, str | None]], Awaitable[None]],
        on_batch: Callable[[int], None],
    ) -> None:
        self._cache = cache
        self._target = target
        self._on_key = on_key
        self._on_batch = on_batch
        self._request = self._running = 0
        self._latest: KeySearch | None = None
        self._shown: KeySearch | None = None

    def build(self) -> None:
        with panel("Find a key", about="in all batches whose state can be rebuilt", classes="hw-wide"):
            with ui.element("div").classes("hw-controls"):
                self._input = ui.input(placeholder="part of a key, or its beginning: ann*").props(
                    'dense outlined clearable aria-label="find a key"'
                )
                self._input.classes("hw-find").on("keydown.enter", self.search)
                ui.button("Find", icon="manage_search", on_click=self.search).props("flat no-caps dense data-find")
                self._stop = ui.button("Stop", on_click=self.stop).props("flat no-caps dense")
                self._spinner = ui.spinner(size="1.2em")
            self._summary = ui.label().classes("hw-explanation").props("data-found aria-live=polite")
            self._results = ui.element("div").classes("hw-found")
        self._set_running(is_running=False)

    def focus(self) -> None:
        """Put the cursor into the search field."""
        self._input.run_method("focus")

    def stop(self) -> None:
        """End the search that runs. What it has found stays."""
        self._request += 1

    async def search(self) -> None:
        """Search for the text in the field."""
        text, target = str(self._input.value or "").strip(), self._target()
        self._request += 1
        request = self._request
        if not text.strip("*") or target is None:
            self._summary.set_text("This query has no state." if text else "")
            self._results.clear()
            return
        self._latest = self._shown = None
        self._running = request
        self._set_running(is_running=True)
        self._summary.set_text(f"searching {target.label} ...")
        self._results.clear()
        task = asyncio.create_task(asyncio.to_thread(self._run, target, text, request))
        while not task.done():
            await asyncio.wait({task}, timeout=SHOW_SECONDS)
            if request == self._running:
                self._show()
        if (error := task.exception()) is not None and request == self._running:
            self._summary.set_text("")
            replace_with_error(self._results, error if isinstance(error, Exception) else RuntimeError(str(error)))
        if request == self._running:
            self._set_running(is_running=False)
            self._show()

    def _run(self, target: StateTarget, text: str, request: int) -> None:
        for found in self._cache.search_keys(target, text, lambda: request == self._request):
            if request == self._running:
                self._latest = found

    def _set_running(self, *, is_running: bool) -> None:
        for element in (self._spinner, self._stop):
            element.set_visibility(is_running)

    def _show(self) -> None:
        found = self._latest
        if found is None or found is self._shown:
            return
        self._shown = found
        self._summary.set_text(found.summary)
        self._results.clear()
        with self._results:
            for key in found.keys:
                self._build_key(key)

    def _build_key(self, key: FoundKey) -> None:
        async def open_key(*_: Any) -> None:
            await self._on_key(key.key)

        with ui.element("div").classes("hw-found-key").props("data-key"):
            ui.button(key.label, on_click=open_key).props("flat no-caps dense align=left data-open-key")
            ui.label("" if key.is_there else "removed").classes("hw-about")
            changes = key.batches[-MOST_BATCHES:]
            about = f"changed in {len(key.batches)} batches:" if len(key.batches) > 1 else "changed in batch"
            ui.label(about if changes else "unchanged in these batches").classes("hw-about")
            if len(changes) < len(key.batches):
                ui.label("\u2026").classes("hw-about")
            for batch in changes:
                ui.button(str(batch), on_click=lambda batch=batch: self._on_batch(batch)).props(
                    "flat no-caps dense size=sm"
                )
