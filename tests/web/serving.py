"""``headwater ui`` in a process of its own, and Chromium to open it with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Locator, Page, expect

from broker_support import HEADWATER

TIMEOUT_MS = 240_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def chromium_path() -> str | None:
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@dataclass(frozen=True)
class Served:
    """A page that is being served."""

    url: str
    pid: int

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.url).query)["token"][0]


@contextmanager
def served(*arguments: object, cwd: Path | None = None) -> Iterator[Served]:
    """Run ``headwater ui`` until the block ends. Ctrl-C must stop it cleanly."""
    process = subprocess.Popen(
        [HEADWATER, "ui", *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith(("http://", "https://")), process.communicate()[1]
        yield Served(url, process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        assert errors == "", errors
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def opened(browser: Browser, url: str, *, width: int = 1280, dark: bool = False) -> Iterator[Page]:
    """Open the page in a new window. Fail on script errors, failed responses and requests to other machines."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    context.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("response", lambda reply: problems.append(f"{reply.status} {reply.url}") if reply.status >= 400 else None)
    page.on("request", lambda sent: problems.append(sent.url) if _is_foreign(sent.url) else None)
    try:
        page.goto(url)
        yield page
        assert problems == []
    finally:
        context.close()


def _is_foreign(url: str) -> bool:
    """Return whether a URL is on another machine: the page has to work without a network."""
    return urlsplit(url).hostname not in {"127.0.0.1", None}


def figure(page: Page, name: str) -> Locator:
    return page.locator(f'[data-figure="{name}"] .hw-figure-value')


def summary(page: Page) -> Locator:
    return page.locator("[data-summary]")


def state_rows(page: Page) -> list[tuple[str, ...]]:
    """Return the visible rows of the table: the mark, then the current values of the cells."""
    cells = """rows => rows.map(row => [...row.querySelectorAll('td')].map(
        cell => [...cell.querySelectorAll('span:not(.hw-was)')].map(part => part.textContent).join('')))"""
    return [tuple(row) for row in page.locator(".hw-state .hw-row").evaluate_all(cells)]


def go_to(page: Page, batch: int, *, has_state: bool = True) -> None:
    """Select a batch with the arrow keys."""
    shown = page.locator("[data-batch]")
    expect(shown).to_be_visible()
    page.locator("body").focus()
    while (now := int(shown.get_attribute("data-batch") or 0)) != batch:
        page.keyboard.press("ArrowLeft" if now > batch else "ArrowRight")
        expect(shown).not_to_have_attribute("data-batch", str(now))
    if has_state:
        expect(summary(page)).to_contain_text(f"batch {batch} ")
