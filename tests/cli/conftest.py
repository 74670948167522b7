"""Fixtures for tests of verbs."""

from __future__ import annotations

import pytest

from cli.running import Command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a verb in this process."""
    return Command(monkeypatch, capsys)
