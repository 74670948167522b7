"""Fixtures for tests of verbs."""

from __future__ import annotations

import pytest

from cli.running import Command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs a verb in this process."""
    return Command(monkeypatch, capsys)
