"""What the tests of the time machine share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _disk_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests kill processes, not machines: waiting for the disk thousands of times would only make them slow."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
