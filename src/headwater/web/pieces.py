"""Small pieces that the page is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from headwater.core.errors import HeadwaterError


@contextmanager
def panel(title: str, *, about: str = "", classes: str = "") -> Iterator[ui.element]:
    """A card with a heading."""
    with ui.element("section").classes(f"hw-panel {classes}") as card:
        with ui.element("div").classes("hw-panel-head"):
            ui.label(title).classes("hw-title").props('role="heading" aria-level="2"')
            if about:
                ui.label(about).classes("hw-about")
        yield card


def nothing(text: str, icon: str = "hourglass_empty") -> None:
    """What stands where there is nothing to show yet."""
    with ui.element("div").classes("hw-nothing"):
        ui.icon(icon)
        ui.label(text)


def show_error(error: HeadwaterError) -> None:
    """The same words as on a terminal: problem, evidence, remedy."""
    with ui.element("div").classes("hw-error").props('role="alert"'):
        ui.label(error.problem).classes("hw-error-problem")
        for label, text in error.evidence.items():
            with ui.element("div").classes("hw-error-line"):
                ui.label(label).classes("hw-error-label")
                ui.label(text)
        if error.remedy:
            ui.label(error.remedy).classes("hw-code")


def chip(text: str, kind: str) -> ui.label:
    return ui.label(text).classes(f"hw-chip hw-chip-{kind}")
