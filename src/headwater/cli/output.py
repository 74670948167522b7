"""Printing to the terminal. No other module prints."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headwater.core.errors import HeadwaterError


def say(text: str = "") -> None:
    """Print a line of the result to standard output."""
    print(text, flush=True)


def note(text: str) -> None:
    """Print a line about progress, or a warning, to standard error, where it does not disturb a pipe."""
    print(text, file=sys.stderr, flush=True)


def note_from_signal_handler(text: str) -> None:
    """Write a line to standard error without ``print``, which the signal may have interrupted."""
    start = "\r\x1b[2K" if os.isatty(2) else ""
    os.write(2, f"{start}{text}\n".encode())


def json_text(value: Mapping[str, Any]) -> str:
    """Return a JSON object as one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def json_line(value: Mapping[str, Any]) -> None:
    print(json_text(value), flush=True)


def json_lines(values: Iterable[Mapping[str, Any]]) -> None:
    for value in values:
        json_line(value)


def show_error(error: HeadwaterError, *, as_json: bool = False) -> None:
    note(json.dumps(error.as_dict(), ensure_ascii=False) if as_json else str(error))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table that fits the terminal, or one of fixed width when piped."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*("" if cell is None else str(cell) for cell in row))
    terminal = sys.stdout.isatty()
    Console(width=None if terminal else 200, highlight=False, markup=False).print(shown)


class StatusLine:
    """The last line of a terminal, rewritten as work progresses; plain lines when standard error is piped.

    ``shared`` means that another writer prints to standard output at the same time. On a terminal, unfinished lines
    would get in its way and are not shown.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._terminal = sys.stderr.isatty()
        self.is_live = self._terminal and not (shared and sys.stdout.isatty())
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Show a text until the next call replaces it. Print nothing where lines cannot be rewritten."""
        if self.is_live:
            width = shutil.get_terminal_size().columns - 1
            self._print(f"\r\x1b[2K{text[:width]}", end="")

    def keep(self, text: str) -> None:
        """Print a line that stays."""
        self._print(f"\r\x1b[2K{text}" if self._terminal else text, end="\n")

    def clear(self) -> None:
        self.show("")

    def _print(self, text: str, *, end: str) -> None:
        with self._lock:
            # Written in one piece: Python flushes at a carriage return, which would show half a line.
            print(f"{text}{end}", end="", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that moves a progress bar to a number of finished items; show no bar when piped."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    started = time.monotonic()
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, rate="")

        def show(done: int) -> None:
            seconds = max(0.001, time.monotonic() - started)
            progress.update(task, completed=done, rate=f"{done / seconds:,.0f}/s")

        yield show
