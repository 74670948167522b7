"""``sources/N`` of a file source: which input files belong to which log offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from headwater.checkpoint.compactible_log import LogNames
from headwater.checkpoint.files import Files
from headwater.checkpoint.logtext import LogText, entries_of, json_object, read_bytes, string, whole_number

NEWEST_VERSION = 1
VERSION_LINE = "v1"


@dataclass(frozen=True)
class FileEntry:
    """One input file. ``batch_id`` is the log offset at which it was first seen, not a batch of the query."""

    path: str
    timestamp_ms: int
    batch_id: int
    line: str


@dataclass(frozen=True)
class FileSourceEntries:
    """One file of the log. ``text`` is the file itself."""

    text: LogText
    entries: tuple[FileEntry, ...]

    def to_bytes(self) -> bytes:
        return self.text.to_bytes()


def parse_file_source_log(data: bytes, path: str) -> FileSourceEntries:
    text = LogText.from_bytes(data, path)
    text.version(path, newest=NEWEST_VERSION)
    return FileSourceEntries(text, tuple(_entry(line, path) for line in text.body))


def log_with(entries: Iterable[FileEntry]) -> bytes:
    """A log file that holds just these entries, each as Spark wrote it."""
    return "\n".join([VERSION_LINE, *(entry.line for entry in entries)]).encode("utf-8")


def _entry(line: str, path: str) -> FileEntry:
    value = json_object(line, path)
    return FileEntry(
        string(value, "path", path),
        whole_number(value, "timestamp", path, default=0),
        whole_number(value, "batchId", path, default=-1),
        line,
    )


class FileSourceLog:
    """A file source's log, read as far as it is asked for."""

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder
        self.names = LogNames.of(entry.name for entry in entries_of(files, folder) if not entry.is_folder)
        self._read = lru_cache(maxsize=64)(self._read_file)
        self._bytes = lru_cache(maxsize=1)(self._read_bytes)

    def _read_bytes(self, name: str) -> bytes:
        return read_bytes(self.files, f"{self.folder}/{name}")

    def _read_file(self, name: str) -> FileSourceEntries:
        return parse_file_source_log(self._bytes(name), f"{self.folder}/{name}")

    def entries_at(self, number: int) -> tuple[FileEntry, ...] | None:
        """The input files of one log offset, None when no file of the log has them any more."""
        name = self.names.holder_of(number)
        if name is None:
            return None
        found = self._read(name).entries
        if name == str(number):
            return found
        return tuple(entry for entry in found if entry.batch_id == number)

    def entries_between(self, after: int, upto: int) -> tuple[FileEntry, ...] | None:
        """The input files of all log offsets in (after, upto], None when those of any are lost."""
        if upto - after > MOST_OFFSETS_IN_A_BATCH:
            return None
        found: list[FileEntry] = []
        # A compacted file repeats everything before it: one is read instead of many.
        compacted = max((number for number in self.names.compact_ids if after < number <= upto), default=None)
        if compacted is not None:
            held = self._read(self.names.by_id[compacted]).entries
            found += [entry for entry in held if after < entry.batch_id <= compacted]
        for number in range(after + 1 if compacted is None else compacted + 1, upto + 1):
            entries = self.entries_at(number)
            if entries is None:
                return None
            found += entries
        return tuple(found)

    def count_between(self, after: int, upto: int) -> int | None:
        """How many input files the log offsets in (after, upto] have, without taking large compact files apart."""
        if upto - after > MOST_OFFSETS_IN_A_BATCH:
            return None
        total = 0
        for number in range(after + 1, upto + 1):
            name = self.names.holder_of(number)
            if name is None:
                return None
            own = name == str(number)
            total += len(self._read(name).entries) if own else self._bytes(name).count(b'"batchId":%d}' % number)
        return total

    def everything_upto(self, number: int) -> tuple[FileEntry, ...] | None:
        """All input files seen up to a log offset, oldest first, None when the log no longer tells."""
        start = self.names.needed_for(number)
        found: list[FileEntry] = []
        if not self.names.missing_for(number):
            for held in start:
                found += self._read(self.names.by_id[held]).entries
            return tuple(found)
        later = next((compact for compact in self.names.compact_ids if compact > number), None)
        if later is None:
            return None
        return tuple(entry for entry in self._read(self.names.by_id[later]).entries if entry.batch_id <= number)


# A query takes one log offset a batch; a larger step means that the log is broken.
MOST_OFFSETS_IN_A_BATCH = 10_000
