"""Chromium for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from web.serving import FLAGS, chromium_path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests; each test opens its own window."""
    path = chromium_path()
    if path is None:
        pytest.skip("chromium is not installed: apt install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()
