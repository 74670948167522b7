"""Small elements that the panels of the page share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from headwater.core.errors import HeadwaterError, InternalError


@contextmanager
def panel(title: str, *, about: str = "", classes: str = "") -> Iterator[ui.element]:
    """Build a card with a heading."""
    with ui.element("section").classes(f"hw-panel {classes}") as card:
        with ui.element("div").classes("hw-panel-head"):
            ui.label(title).classes("hw-title").props('role="heading" aria-level="2"')
            if about:
                ui.label(about).classes("hw-about")
        yield card


def placeholder(text: str, icon: str = "hourglass_empty") -> None:
    """Show a text where there is nothing else to show yet."""
    with ui.element("div").classes("hw-placeholder"):
        ui.icon(icon)
        ui.label(text)


def show_error(error: Exception) -> None:
    """Show an error as on the terminal: problem, evidence, remedy. An unexpected error is shown as an internal one."""
    shown = error if isinstance(error, HeadwaterError) else InternalError(error)
    with ui.element("div").classes("hw-error").props('role="alert"'):
        ui.label(shown.problem).classes("hw-error-problem")
        for label, text in shown.evidence.items():
            with ui.element("div").classes("hw-error-line"):
                ui.label(label).classes("hw-error-label")
                ui.label(text)
        if shown.remedy:
            ui.label(shown.remedy).classes("hw-code")


def replace_with_error(container: ui.element, error: Exception) -> None:
    """Show an error in place of the content of a container."""
    container.clear()
    with container:
        show_error(error)


def chip(text: str, kind: str) -> ui.label:
    """Show a short text on a colored background; ``kind`` is good, warn, bad or dull."""
    return ui.label(text).classes(f"hw-chip hw-chip-{kind}")
