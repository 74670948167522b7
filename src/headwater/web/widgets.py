"""Small elements that the panels of the page share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from nicegui import events, ui

from headwater.core.errors import HeadwaterError, InternalError
from headwater.core.text import displayable


@contextmanager
def panel(title: str, *, about: str = "", classes: str = "") -> Iterator[ui.element]:
    """Build a card with a heading."""
    with ui.element("section").classes(f"hw-panel {classes}") as card:
        with ui.element("div").classes("hw-panel-head"):
            ui.label(title).classes("hw-title").props('role="heading" aria-level="2"')
            if about:
                ui.label(about).classes("hw-about")
        yield card


# ECharts draws SVG, in the colors of the page; a canvas of twice its size turns it into a picture.
_SAVE_PNG = """
const svg = getHtmlElement(%d).querySelector("svg"), box = svg.getBoundingClientRect(), image = new Image();
image.onload = () => {
  const canvas = Object.assign(document.createElement("canvas"), {width: 2 * box.width, height: 2 * box.height});
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(svg.closest(".hw-panel")).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  Object.assign(document.createElement("a"), {href: canvas.toDataURL("image/png"), download: %s}).click();
};
const copy = svg.cloneNode(true);
copy.setAttribute("width", box.width); copy.setAttribute("height", box.height);
copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
"""


def save_as_png(card: ui.element, chart: ui.echart, title: str) -> None:
    """Add a button to the heading of a card that saves its chart as a picture."""
    head = next(iter(card.default_slot.children))
    name = json.dumps(f"{title.lower().replace(' ', '-')}.png")
    with head:
        button = ui.button(icon="photo_camera", on_click=lambda: ui.run_javascript(_SAVE_PNG % (chart.id, name)))
        mark(button.props("flat round dense size=sm").classes("hw-save"), "aria-label", f"save {title} as PNG")


Marked = TypeVar("Marked", bound=ui.element)


def mark(element: Marked, name: str, text: object) -> Marked:
    """Set an attribute of an element to a text, whatever is in it. ``props`` would parse the text."""
    if element.props.get(name) != str(text):
        element.props[name] = str(text)
    return element


def placeholder(text: str, icon: str = "hourglass_empty") -> None:
    """Show a text where there is nothing else to show yet."""
    with ui.element("div").classes("hw-placeholder"):
        ui.icon(icon)
        ui.label(text)


def show_error(error: Exception) -> None:
    """Show an error as on the terminal: problem, evidence, remedy. An unexpected error is shown as an internal one."""
    shown = error if isinstance(error, HeadwaterError) else InternalError(error)
    with ui.element("div").classes("hw-error").props('role="alert"'):
        ui.label(displayable(shown.problem)).classes("hw-error-problem")
        for label, text in shown.evidence.items():
            with ui.element("div").classes("hw-error-line"):
                ui.label(label).classes("hw-error-label")
                ui.label(displayable(str(text)))
        if shown.remedy:
            ui.label(displayable(shown.remedy)).classes("hw-code")


def replace_with_error(container: ui.element, error: Exception) -> None:
    """Show an error in place of the content of a container."""
    container.clear()
    with container:
        show_error(error)


def help_dialog(keys: Mapping[str, str]) -> ui.dialog:
    """Build a list of keys and what they do, which is shown on request."""
    with ui.dialog() as dialog, ui.card().classes("hw-panel hw-help"):
        ui.label("Keys").classes("hw-title")
        for key, meaning in keys.items():
            with ui.element("div").classes("hw-error-line"):
                ui.label(key).classes("hw-error-label")
                ui.label(meaning)
    return dialog


def listen_to_keys(actions: Callable[[], Mapping[str, Callable[[], None]]]) -> None:
    """Call the action of a key when it is pressed, unless the reader types into a field."""

    def pressed(event: events.KeyEventArguments) -> None:
        held = event.modifiers
        if not event.action.keydown or held.ctrl or held.meta or held.alt:
            return
        if action := actions().get(event.key.name):
            action()

    ui.keyboard(on_key=pressed, ignore=["input", "select", "textarea"])


def chip(text: str, kind: str) -> ui.label:
    """Show a short text on a colored background; ``kind`` is good, warn, bad or dull."""
    return ui.label(text).classes(f"hw-chip hw-chip-{kind}")
