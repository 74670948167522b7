"""The logs of a file source (``sources/N``) and a file sink (``_spark_metadata``).

There is one file for each id. At regular intervals a ``.compact`` file repeats everything up to its id, and Spark may
then remove the older files. A source's log records which input files belong to which log offset; a sink's log records
which data files each batch added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Generic, Protocol, TypeVar

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import COMPACT, SINK_LOG, log_id
from headwater.checkpoint.logtext import LogText, integer_field, json_object, list_entries, read_bytes, string_field

MOST_REPORTED = 20
# A batch normally advances the log offset by one; a far larger step means that the log is corrupt.
MOST_OFFSETS_IN_A_BATCH = 10_000


@dataclass(frozen=True)
class LogNames:
    """The file names of a source's or sink's log by id, from a listing."""

    by_id: dict[int, str]
    duplicates: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> LogNames:
        """Return the names that are ids; of two files for one id, the compact one is used."""
        by_id: dict[int, str] = {}
        duplicates = []
        for name in sorted(names):
            number = log_id(name)
            if number is None:
                continue
            if number in by_id:
                duplicates.append(name)
            if number not in by_id or name.endswith(COMPACT):
                by_id[number] = name
        return cls(by_id, tuple(duplicates))

    @cached_property
    def ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.by_id))

    @cached_property
    def compact_ids(self) -> tuple[int, ...]:
        return tuple(number for number in self.ids if self.is_compact(number))

    @property
    def latest(self) -> int | None:
        return self.ids[-1] if self.ids else None

    def is_compact(self, number: int) -> bool:
        return self.by_id[number].endswith(COMPACT)

    def _start_for(self, number: int) -> int:
        return max((compact for compact in self.compact_ids if compact <= number), default=0)

    def needed_for(self, number: int) -> tuple[int, ...]:
        """Return the ids on disk that together hold everything up to ``number``: the last compact one and all after it."""
        start = self._start_for(number)
        return tuple(present for present in self.ids if start <= present <= number)

    def missing_for(self, number: int) -> tuple[int, ...]:
        """Return those of the needed ids that are not on disk, at most ``MOST_REPORTED``."""
        present = set(self.needed_for(number))
        missing: list[int] = []
        for candidate in range(self._start_for(number), number + 1):
            if len(present) + len(missing) > number - self._start_for(number) or len(missing) == MOST_REPORTED:
                break
            if candidate not in present:
                missing.append(candidate)
        return tuple(missing)

    def holder_of(self, number: int) -> str | None:
        """Return the file that has the entries of an id: its own, or the next compact one; None if there is neither."""
        if number in self.by_id:
            return self.by_id[number]
        later = next((compact for compact in self.compact_ids if compact > number), None)
        return None if later is None else self.by_id[later]


NEWEST_VERSION = 1


class LoggedFile(Protocol):
    """A file that a log names. ``line`` is its entry as read."""

    @property
    def line(self) -> str: ...


Logged = TypeVar("Logged", bound=LoggedFile)


@dataclass(frozen=True)
class LogFile(Generic[Logged]):
    """A file of a source's or a sink's log. ``text`` is the file as read."""

    text: LogText
    entries: tuple[Logged, ...]


def log_with(entries: Iterable[LoggedFile]) -> bytes:
    """Return a log file with exactly these entries, as Spark writes it."""
    return "\n".join([f"v{NEWEST_VERSION}", *(entry.line for entry in entries)]).encode("utf-8")


def _parse(data: bytes, path: str, entry: Callable[[str, str], Logged]) -> LogFile[Logged]:
    text = LogText.from_bytes(data, path)
    text.version(path, newest=NEWEST_VERSION)
    return LogFile(text, tuple(entry(line, path) for line in text.body))


@dataclass(frozen=True)
class FileEntry:
    """An input file. ``batch_id`` is the log offset at which it was first seen, not a batch of the query."""

    path: str
    timestamp_ms: int
    batch_id: int
    line: str


def parse_file_source_log(data: bytes, path: str) -> LogFile[FileEntry]:
    """Return a parsed file of a source's log."""
    return _parse(data, path, _file_entry)


def _file_entry(line: str, path: str) -> FileEntry:
    value = json_object(line, path)
    return FileEntry(
        string_field(value, "path", path),
        integer_field(value, "timestamp", path, default=0),
        integer_field(value, "batchId", path, default=-1),
        line,
    )


class FileSourceLog:
    """A file source's log, read lazily."""

    def __init__(self, files: FileTree, folder: str) -> None:
        self.files = files
        self.folder = folder
        self.names = LogNames.of(entry.name for entry in list_entries(files, folder) if not entry.is_folder)
        self._read = lru_cache(maxsize=64)(self._read_file)
        self._bytes = lru_cache(maxsize=1)(self._read_bytes)

    def _read_bytes(self, name: str) -> bytes:
        return read_bytes(self.files, f"{self.folder}/{name}")

    def _read_file(self, name: str) -> LogFile[FileEntry]:
        return parse_file_source_log(self._bytes(name), f"{self.folder}/{name}")

    def entries_at(self, number: int) -> tuple[FileEntry, ...] | None:
        """Return the input files of a log offset; None if the log no longer has them."""
        name = self.names.holder_of(number)
        if name is None:
            return None
        found = self._read(name).entries
        if name == str(number):
            return found
        return tuple(entry for entry in found if entry.batch_id == number)

    def entries_between(self, after: int, upto: int) -> tuple[FileEntry, ...] | None:
        """Return the input files of all log offsets in (after, upto]; None if the log no longer has them all."""
        if upto - after > MOST_OFFSETS_IN_A_BATCH:
            return None
        found: list[FileEntry] = []
        # A compact file repeats everything before it, so it is read instead of many files.
        compacted = max((number for number in self.names.compact_ids if after < number <= upto), default=None)
        if compacted is not None:
            repeated = self._read(self.names.by_id[compacted]).entries
            found += [entry for entry in repeated if after < entry.batch_id <= compacted]
        for number in range(after + 1 if compacted is None else compacted + 1, upto + 1):
            entries = self.entries_at(number)
            if entries is None:
                return None
            found += entries
        return tuple(found)

    def count_between(self, after: int, upto: int) -> int | None:
        """Return the number of input files of the log offsets in (after, upto], without parsing large compact files."""
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
        """Return all input files up to a log offset, oldest first; None if the log no longer has them all."""
        if not self.names.missing_for(number):
            needed = self.names.needed_for(number)
            return tuple(entry for one in needed for entry in self._read(self.names.by_id[one]).entries)
        later = next((compact for compact in self.names.compact_ids if compact > number), None)
        if later is None:
            return None
        return tuple(entry for entry in self._read(self.names.by_id[later]).entries if entry.batch_id <= number)


@dataclass(frozen=True)
class SinkFile:
    """A data file of a sink. ``path`` is an absolute, percent-encoded URI."""

    path: str
    size: int
    action: str
    line: str


def parse_file_sink_log(data: bytes, path: str) -> LogFile[SinkFile]:
    """Return a parsed file of a sink's log."""
    return _parse(data, path, _sink_file)


def _sink_file(line: str, path: str) -> SinkFile:
    value = json_object(line, path)
    return SinkFile(
        string_field(value, "path", path),
        integer_field(value, "size", path, default=0),
        str(value.get("action", "add")),
        line,
    )


class FileSinkLog:
    """The log of a file sink. ``files`` is the sink's output folder."""

    def __init__(self, files: FileTree) -> None:
        self.files = files
        self.names = LogNames.of(entry.name for entry in list_entries(files, SINK_LOG) if not entry.is_folder)

    def path(self, number: int) -> str:
        """Return the path of the file that has an id."""
        return f"{SINK_LOG}/{self.names.by_id[number]}"

    def read(self, number: int) -> LogFile[SinkFile]:
        """Return the parsed file that has an id."""
        path = self.path(number)
        return parse_file_sink_log(read_bytes(self.files, path), path)
