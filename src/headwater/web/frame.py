"""What all pages share: style, header, the address without the token, and the way back to all streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nicegui import ui

from headwater.web.gate import LOGIN, LOGOUT, Visitor

STYLE = Path(__file__).with_name("page.css")
LOGO = Path(__file__).with_name("logo.svg")
# The cookie takes the place of the token: what is in the address bar ends up in histories and screenshots.
_CLEAN_ADDRESS = """<script>{
  const url = new URL(location.href);
  if (url.searchParams.has("token")) { url.searchParams.delete("token"); history.replaceState(history.state, "", url); }
}</script>"""
_LOG_OUT = f"fetch({LOGOUT!r}, {{method: 'POST'}}).finally(() => location.assign({LOGIN!r}))"


class Frame:
    """The header of a page, with room for what it is about."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor

    def build(self, about: Callable[[], None], *, home: str | None = None) -> None:
        """Build the header; ``about`` adds the name of what is shown, and ``home`` is where the logo leads."""
        ui.add_head_html(_CLEAN_ADDRESS)
        ui.add_css(STYLE.read_text())
        ui.query("body").classes("hw-body")
        self._dark = ui.dark_mode(None)
        with ui.element("header").classes("hw-header"):
            with ui.link(target=home or "#").classes("hw-home") if home else ui.element("div").classes("hw-home"):
                ui.html(LOGO.read_text(), sanitize=False).classes("hw-logo")
                ui.label("Headwater").classes("hw-brand")
            about()
            ui.space()
            self._build_visitor()
            ui.button(icon="contrast", on_click=self._toggle_dark).props('flat round dense aria-label="light or dark"')

    def _build_visitor(self) -> None:
        visitor = self._visitor
        mode = "changes allowed" if visitor.may_change else "read-only"
        ui.label(mode).classes("hw-chip hw-chip-dull hw-mode")
        if visitor.name is not None:
            ui.label(visitor.name).classes("hw-chip hw-chip-dull").props("data-user")
        if visitor.can_log_out:
            ui.button(icon="logout", on_click=lambda: ui.run_javascript(_LOG_OUT)).props(
                'flat round dense aria-label="log out"'
            )

    async def _toggle_dark(self) -> None:
        dark = await ui.run_javascript("document.body.classList.contains('body--dark')", timeout=30)
        self._dark.set_value(not dark)
