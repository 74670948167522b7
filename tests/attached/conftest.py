"""Fixtures for tests of attached programs."""

from cli.conftest import command

__all__ = ["command"]
