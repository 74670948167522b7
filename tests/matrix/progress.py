"""Progress of a set of tests: one living line on a terminal, else a line every half minute."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

OUTCOME = re.compile(rb" (PASSED|FAILED|SKIPPED|ERROR)\b[^\n]*\[ *\d+%\]")
COLLECTED = re.compile(rb"collected (\d+) items(?: / (\d+) deselected)?")
SECONDS_BETWEEN_LINES = 30


def outcomes_in(output: Path) -> tuple[int, int]:
    """Return how many tests have ended, and how many there are, by what `pytest -v` has printed so far."""
    text = output.read_bytes()
    found = COLLECTED.search(text)
    every = int(found[1]) - int(found[2] or 0) if found else 0
    return len(OUTCOME.findall(text)), every


class Display:
    """Where the progress of one set is shown."""

    def __init__(self, label: str) -> None:
        self.label, self.shown_at = label, time.monotonic()
        self.on_terminal = sys.stdout.isatty()
        self._put("…")

    def show(self, outcomes: tuple[int, int]) -> None:
        ended, every = outcomes
        due = self.on_terminal or time.monotonic() - self.shown_at >= SECONDS_BETWEEN_LINES
        if due and every:
            self.shown_at = time.monotonic()
            self._put(f"{ended} of {every} …")

    def end(self, result: str) -> None:
        self._put(result, last=True)

    def _put(self, text: str, *, last: bool = False) -> None:
        if self.on_terminal:
            print(f"\r\033[K{self.label}: {text}", end="\n" if last else "", flush=True)
        else:
            print(f"{self.label}: {text}", flush=True)
