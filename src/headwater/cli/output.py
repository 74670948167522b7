"""The one file that prints. Everything else hands it plain values."""

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
    """A line of the answer, on standard output."""
    print(text, flush=True)


def note(text: str) -> None:
    """A line about the work, on standard error, out of the way of pipes."""
    print(text, file=sys.stderr, flush=True)


def call_out(text: str) -> None:
    """A note from inside a signal handler, which may have interrupted a print."""
    start = "\r\x1b[2K" if os.isatty(2) else ""
    os.write(2, f"{start}{text}\n".encode())


def json_line(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False, default=str), flush=True)


def json_lines(values: Iterable[Mapping[str, Any]]) -> None:
    for value in values:
        json_line(value)


def show_error(error: HeadwaterError, *, as_json: bool = False) -> None:
    note(json.dumps(error.as_dict(), ensure_ascii=False) if as_json else str(error))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table that fits the terminal, or plain aligned columns when piped."""
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


class LivingLine:
    """The last line of a terminal, rewritten as things move on; plain lines when standard error is piped.

    ``shared`` says that somebody else writes to standard output meanwhile: a half line must not get in his way.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._terminal = sys.stderr.isatty()
        self.is_alive = self._terminal and not (shared and sys.stdout.isatty())
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Something that will be replaced. Not printed at all where lines cannot be rewritten."""
        if self.is_alive:
            width = shutil.get_terminal_size().columns - 1
            self._print(f"\r\x1b[2K{text[:width]}", end="")

    def keep(self, text: str) -> None:
        """Something that stays."""
        self._print(f"\r\x1b[2K{text}" if self._terminal else text, end="\n")

    def clear(self) -> None:
        self.show("")

    def _print(self, text: str, *, end: str) -> None:
        with self._lock:
            # In one piece: a carriage return alone makes Python write what it has so far.
            print(f"{text}{end}", end="", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's standard error, moved by calls with the number done so far; nothing when piped."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    began = time.monotonic()
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total, rate="")

        def show(done: int) -> None:
            seconds = max(0.001, time.monotonic() - began)
            progress.update(task, completed=done, rate=f"{done / seconds:,.0f}/s")

        yield show
