"""Fixtures for tests of guards."""

from __future__ import annotations

from cli.conftest import command

__all__ = ["command"]
