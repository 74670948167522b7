"""A checkpoint's logs, listed once and read lazily."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from headwater.checkpoint.filetree import Entry, FileTree
from headwater.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, STATE, batch_id, log_id
from headwater.checkpoint.log_entries import (
    CommitEntry,
    OffsetEntry,
    QueryMetadata,
    parse_commit,
    parse_offsets,
    parse_query_metadata,
)
from headwater.checkpoint.logtext import list_entries, list_tree, read_bytes, unreadable_file
from headwater.checkpoint.operator_metadata import (
    OperatorMetadata,
    metadata_path,
    parse_operator_metadata,
    version_2_folder,
)
from headwater.checkpoint.record import JobRecord, read_job_record
from headwater.checkpoint.source_offsets import NO_HINT, SourceHint, hint_from_source_log, kind_by_form
from headwater.checkpoint.state_folder import StateTree
from headwater.core.errors import CheckpointUnreadable
from headwater.core.ids import StateVersion, StoreKey, batch_that_wrote

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Outcome(Generic[Parsed]):
    """A parsed file, or the error that prevented parsing."""

    entry: Parsed | None
    error: CheckpointUnreadable | None = None


class BatchLog(Generic[Parsed]):
    """``offsets/`` or ``commits/``, which have a file for each batch."""

    def __init__(self, files: FileTree, folder: str, parse: Callable[[bytes, str], Parsed]) -> None:
        self._files = files
        self._parse = parse
        self._outcomes: dict[int, Outcome[Parsed]] = {}
        self.folder = folder

    @cached_property
    def entries(self) -> dict[int, Entry]:
        """The files by batch. Spark reads ``07`` as 7 too; the shortest name is used."""
        found: dict[int, Entry] = {}
        for entry in sorted(list_entries(self._files, self.folder), key=lambda entry: -len(entry.name)):
            number = batch_id(entry.name)
            if number is not None and not entry.is_folder:
                found[number] = entry
        return found

    @cached_property
    def ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.entries))

    @property
    def latest(self) -> int | None:
        return self.ids[-1] if self.ids else None

    def path(self, number: int) -> str:
        """Return the path of a batch's file, also if it does not exist."""
        entry = self.entries.get(number)
        return f"{self.folder}/{entry.name if entry else number}"

    def modified_ms(self, number: int) -> int | None:
        """Return when a batch's file was written; None if unknown."""
        entry = self.entries.get(number)
        return entry.modified_ms if entry else None

    def outcome(self, number: int) -> Outcome[Parsed]:
        """Return the entry or its error; never raises on bad data."""
        if number not in self._outcomes:
            try:
                self._outcomes[number] = Outcome(self.read(number))
            except CheckpointUnreadable as error:
                self._outcomes[number] = Outcome(None, error)
        return self._outcomes[number]

    def get(self, number: int) -> Parsed | None:
        """Return the entry; None if it does not exist or cannot be read."""
        return self.outcome(number).entry if number in self.entries else None

    def read(self, number: int) -> Parsed:
        """Return the entry; raise ``CheckpointUnreadable`` if it is missing or corrupt."""
        path = self.path(number)
        if number not in self.entries:
            raise unreadable_file("missing-file", path, "does not exist")
        return self._parse(read_bytes(self._files, path), path)


class CheckpointLogs:
    """The text logs of a checkpoint and the names of its state files."""

    def __init__(self, files: FileTree) -> None:
        self.files = files
        self.offsets: BatchLog[OffsetEntry] = BatchLog(files, OFFSETS, parse_offsets)
        self.commits: BatchLog[CommitEntry] = BatchLog(files, COMMITS, parse_commit)
        self._hints: dict[tuple[str, bool], SourceHint] = {}

    @cached_property
    def batch_ids(self) -> tuple[int, ...]:
        return tuple(sorted({*self.offsets.ids, *self.commits.ids}))

    @cached_property
    def is_format_two(self) -> bool:
        """Whether the last commit names its state files, which only checkpoint format 2 does."""
        try:
            last = self.commits.get(self.commits.ids[-1]) if self.commits.ids else None
        except CheckpointUnreadable:
            return False
        return last is not None and last.state_unique_ids is not None

    @cached_property
    def job(self) -> JobRecord:
        return read_job_record(self.files)

    @cached_property
    def query(self) -> Outcome[QueryMetadata]:
        try:
            return Outcome(parse_query_metadata(read_bytes(self.files, METADATA)))
        except CheckpointUnreadable as error:
            return Outcome(None, error)

    @cached_property
    def state(self) -> StateTree:
        """All stores, from one listing. The ids in format 2's file names are read from the commits when needed."""
        return StateTree(list_tree(self.files, STATE), self._unique_id)

    def _unique_id(self, store: StoreKey, version: int) -> str | None:
        commit = self.commits.get(batch_that_wrote(StateVersion(version)))
        return commit.unique_id(store) if commit else None

    def operator(self, operator_id: int, batch: int) -> OperatorMetadata | None:
        """Return an operator's metadata as of a batch; None if it does not exist or cannot be read."""
        folder = version_2_folder(operator_id)
        path = metadata_path(operator_id, self.state.names.get(folder, []), batch)
        try:
            return parse_operator_metadata(read_bytes(self.files, path), path)
        except CheckpointUnreadable:
            return None

    def hint(self, source: str, value: Any = None) -> SourceHint:
        """Return what is known of a source besides its offset ``value``. Its log is read only if the offset is ambiguous."""
        certain = kind_by_form(value) not in (None, "kafka")
        if (source, certain) not in self._hints:
            found = NO_HINT if certain else self._hint_from_log(source)
            self._hints[source, certain] = self._with_record(found, only=self._one_source)
        return self._hints[source, certain]

    @cached_property
    def _one_source(self) -> bool:
        latest = self.offsets.get(self.offsets.ids[-1]) if self.offsets.ids else None
        return latest is not None and len(latest.sources) == 1

    def _hint_from_log(self, source: str) -> SourceHint:
        folder = f"{SOURCES}/{source}"
        first = _first_log_name(entry.name for entry in list_entries(self.files, folder) if not entry.is_folder)
        if first is None:
            return NO_HINT
        try:
            return hint_from_source_log(read_bytes(self.files, f"{folder}/{first}"))
        except CheckpointUnreadable:
            return NO_HINT

    def _with_record(self, hint: SourceHint, *, only: bool) -> SourceHint:
        # The record names one source: if the query has several, it is unknown which one.
        kind = self.job.source_kind if only else None
        if kind is None or (hint.kind is not None and (hint.kind, kind) not in (("files", "table"), ("rate", "rate"))):
            return hint
        return SourceHint(kind, hint.initial, self.job.rows_per_second)


def _first_log_name(names: Iterable[str]) -> str | None:
    numbered = [(number, name) for name in names if (number := log_id(name)) is not None]
    return min(numbered)[1] if numbered else None
