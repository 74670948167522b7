"""Read ``_headwater/progress.jsonl`` by batch, follow it while it grows, and write it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import BinaryIO

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.record import OLDER_FILE, PROGRESS_FILE, ProgressRecord, parse_line, read_progress

MOST_LINES = 10_000
REMOTE_LINES, REMOTE_SECONDS = 500, 5.0
BLOCK_BYTES = 65_536


class ProgressIndex:
    """The same records, parsed when they are needed: most readers need a few of thousands."""

    _START = re.compile(r'\{"batch_id": ?([0-9]{1,18}),')

    def __init__(self, files: FileTree) -> None:
        self._files = files
        self._lines: dict[int, str] | None = None

    def get(self, batch_id: int) -> ProgressRecord | None:
        """Return the latest record of a batch; None if there is none."""
        if self._lines is None:
            self._lines = dict(self._numbered_lines())
        line = self._lines.get(batch_id)
        return None if line is None else parse_line(line)

    def _numbered_lines(self) -> Iterator[tuple[int, str]]:
        for path in (OLDER_FILE, PROGRESS_FILE):
            try:
                text = self._files.read(path).decode("utf-8", "replace")
            except OSError:
                continue
            for line in text.split("\n"):
                if not line.endswith("}"):
                    continue  # truncated: the line before it is still valid
                start = self._START.match(line)
                if start:
                    yield int(start[1]), line
                elif record := parse_line(line):
                    yield record.batch_id, line


class ProgressTail:
    """Reads the growing file repeatedly; on a local disk, only what was added since the last time."""

    def __init__(self, files: FileTree) -> None:
        self._files = files
        self._found: dict[int, ProgressRecord] = {}
        self._file: tuple[int, int] | None = None
        self._read_bytes = 0

    def records(self) -> dict[int, ProgressRecord]:
        """Return the latest record of each batch."""
        path = self._files.local_path(PROGRESS_FILE)
        if path is None:
            return read_progress(self._files)
        try:
            with path.open("rb") as file:
                info = os.fstat(file.fileno())
                if (info.st_dev, info.st_ino) != self._file or info.st_size < self._read_bytes:
                    self._file, self._read_bytes = (info.st_dev, info.st_ino), 0
                    self._found = read_progress(self._files)
                file.seek(self._read_bytes)
                data = file.read()
        except OSError:
            return self._found
        self._read_bytes += data.rfind(b"\n") + 1
        self._found |= _records(data)
        return dict(self._found)


class RecentProgress:
    """Reads the records of the recent batches repeatedly, and keeps no others.

    On a local disk, it first reads the end of the file, and then only what was added. ``keep`` returns what to keep of a
    record.
    """

    def __init__(self, files: FileTree, keep: Callable[[ProgressRecord], ProgressRecord]) -> None:
        self._files = files
        self._keep = keep
        self._found: dict[int, ProgressRecord] = {}
        self._file: tuple[int, int] | None = None
        self._read_bytes = 0

    def since(self, at_ms: int) -> dict[int, ProgressRecord]:
        """Return the latest record of each batch that ended after a time, which must not go back between calls."""
        path = self._files.local_path(PROGRESS_FILE)
        if path is None:
            self._found = self._kept(read_progress(self._files))
        else:
            with suppress(OSError), path.open("rb") as file:
                info = os.fstat(file.fileno())
                if (info.st_dev, info.st_ino) != self._file or info.st_size < self._read_bytes:
                    self._file, self._read_bytes = (info.st_dev, info.st_ino), _offset_of(file, at_ms)
                    self._found = {} if self._read_bytes else self._kept(self._older(at_ms))
                file.seek(self._read_bytes)
                data = file.read()
                self._found |= self._kept(_records(data))
                self._read_bytes += data.rfind(b"\n") + 1
        self._found = {
            number: record for number, record in self._found.items() if record.at_ms + record.duration_ms > at_ms
        }
        return self._found

    def _kept(self, records: Mapping[int, ProgressRecord]) -> dict[int, ProgressRecord]:
        return {number: self._keep(record) for number, record in records.items()}

    def _older(self, at_ms: int) -> dict[int, ProgressRecord]:
        path = self._files.local_path(OLDER_FILE)
        if path is not None:
            with suppress(OSError), path.open("rb") as file:
                file.seek(_offset_of(file, at_ms))
                return _records(file.read())
        return {}


def _records(data: bytes) -> dict[int, ProgressRecord]:
    """Return the latest record of each batch in complete lines."""
    lines = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")
    return {record.batch_id: record for record in map(parse_line, lines) if record}


def _offset_of(file: BinaryIO, at_ms: int) -> int:
    """Return the offset of a line before which all batches ended by a time; 0 if there is none."""
    size, length = file.seek(0, os.SEEK_END), BLOCK_BYTES
    while length < size:
        file.seek(size - length)
        file.readline()  # the rest of a line
        offset = file.tell()
        record = parse_line(file.readline().decode("utf-8", "replace"))
        if record is not None and record.at_ms + record.duration_ms <= at_ms:
            return offset
        length *= 2
    return 0


class ProgressWriter:
    """Appends records, and starts a new file every ``MOST_LINES``. A record that cannot be written is discarded.

    On an object store, ``close`` writes the records of the last few seconds.
    """

    def __init__(self, files: FileTree) -> None:
        self._files = files
        self._lines = self._present_lines()
        self._kept: list[str] = []
        self._is_loaded = False
        self._has_news = False
        self._written_at = 0.0

    def add(self, record: ProgressRecord) -> None:
        """Record a batch."""
        with suppress(Exception):  # a full disk or an unreachable store must not stop the stream
            if self._files.is_local:
                self._append(record.to_line())
            else:
                self._keep(record.to_line())

    def close(self) -> None:
        """Write what is not written yet."""
        with suppress(Exception):
            self._rewrite()

    def _append(self, line: str) -> None:
        if self._lines >= MOST_LINES:
            self._files.move(PROGRESS_FILE, OLDER_FILE)
            self._lines = 0
        self._files.append(PROGRESS_FILE, line.encode())
        self._lines += 1

    def _keep(self, line: str) -> None:
        self._kept = [*self._kept, line][-REMOTE_LINES:]
        self._has_news = True
        if time.monotonic() - self._written_at >= REMOTE_SECONDS:
            self._rewrite()

    def _rewrite(self) -> None:
        """Write the last few hundred lines every few seconds, because objects cannot be appended to."""
        if not self._has_news:
            return
        if not self._is_loaded:  # the lines of earlier runs, which must not be overwritten if they cannot be read
            self._kept = [*self._earlier_lines(), *self._kept][-REMOTE_LINES:]
            self._is_loaded = True
        self._files.write(PROGRESS_FILE, "".join(self._kept).encode())
        self._has_news = False
        self._written_at = time.monotonic()

    def _earlier_lines(self) -> list[str]:
        try:
            text = self._files.read(PROGRESS_FILE).decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        return [f"{line}\n" for line in text.split("\n") if line]

    def _present_lines(self) -> int:
        if self._files.is_local:
            with suppress(OSError):
                return self._files.read(PROGRESS_FILE).count(b"\n")
        return 0
