"""Verbs in this process, run as the command line runs them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from headwater.cli.main import main


@dataclass(frozen=True)
class Ran:
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str


class Command:
    """A function such as ``command("log", path)`` that returns the exit status and the output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ran:
        self._monkeypatch.setattr(sys, "argv", ["headwater", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
        printed = self._capsys.readouterr()
        return Ran(status, printed.out, printed.err)
