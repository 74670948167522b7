"""Run a verb as the command line does, in this process."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from headwater.cli.main import main


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


class Command:
    """`command("log", path)`: what was printed, and the exit status."""

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
