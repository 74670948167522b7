"""A checkpoint's logs, listed once and read lazily."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from headwater.checkpoint.filetree import Entry, FileTree
from headwater.checkpoint.former_state import WithFormer, recorded_stores, with_former_names
from headwater.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, STATE, batch_id, log_id
from headwater.checkpoint.log_entries import (
    CommitEntry,
    OffsetEntry,
    QueryMetadata,
    SourceOffset,
    parse_commit,
    parse_offsets,
    parse_query_metadata,
)
from headwater.checkpoint.logtext import list_entries, list_tree, read_bytes, unreadable_file
from headwater.checkpoint.migrated import FormerMetadata
from headwater.checkpoint.operator_metadata import (
    OperatorMetadata,
    metadata_path,
    parse_operator_metadata,
    version_2_folder,
)
from headwater.checkpoint.progress_files import ProgressIndex
from headwater.checkpoint.record import (
    JobRecord,
    ProgressRecord,
    SourceProgress,
    read_job_record,
    rows_per_second,
    uri_kind,
)
from headwater.checkpoint.source_folders import source_folders
from headwater.checkpoint.source_names import (
    SourceIdentity,
    SourceTraits,
    folder_of_file,
    match_names,
    shared_uri,
    traits_from_description,
    traits_from_offset,
)
from headwater.checkpoint.source_offsets import (
    NO_HINT,
    SourceHint,
    hint_from_source_log,
    kind_by_form,
    kind_of,
    offset_value,
)
from headwater.checkpoint.state_folder import StateTree
from headwater.core.errors import CheckpointUnreadable
from headwater.core.ids import StateVersion, StoreKey, batch_that_wrote

Parsed = TypeVar("Parsed")
# How many of the newest batches are searched for a progress record that describes the sources.
_DESCRIBED_BATCHES = 20


class Progress(Protocol):
    """Progress records by batch: a dictionary, or ``ProgressIndex``."""

    def get(self, batch_id: int, /) -> ProgressRecord | None: ...


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

    def __init__(self, files: FileTree, progress: Progress | None = None) -> None:
        self.files = files
        self.progress: Progress = ProgressIndex(files) if progress is None else progress
        self.offsets: BatchLog[OffsetEntry] = BatchLog(files, OFFSETS, parse_offsets)
        self.commits: BatchLog[CommitEntry] = BatchLog(files, COMMITS, parse_commit)
        self._expected: dict[tuple[int, int | None], tuple[StoreKey, ...]] = {}
        self._hints: dict[tuple[str, bool], SourceHint] = {}
        self._log_hints: dict[str, SourceHint] = {}

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
        """All stores, from one listing. The ids in format 2's file names are read from the commits when needed.

        The state of operators that a migration removed is included: see ``state_files``.
        """
        moved = [path for path, _ in self.former.moved_state()]
        if not moved:
            return self.present_state
        return StateTree(with_former_names(self.present_state.names, moved), self._unique_id)

    @cached_property
    def present_state(self) -> StateTree:
        """The stores in ``state/``, without those of removed operators."""
        return StateTree(list_tree(self.files, STATE), self._unique_id)

    @cached_property
    def state_files(self) -> FileTree:
        """The checkpoint with the state of removed operators at the paths that it had."""
        moved = dict(self.former.moved_state())
        return WithFormer(self.files, moved) if moved else self.files

    def operators(self, batch: int) -> tuple[int, ...]:
        """Return the ids of the stateful operators as of a batch."""
        known = self.former.operators(batch)
        return self.state.operators if known is None else known

    def expected_stores(self, batch: int) -> tuple[StoreKey, ...]:
        """Return the stores that a batch must have."""
        entry = self.offsets.get(batch)
        partitions = entry.shuffle_partitions if entry else None
        operators = self.former.operators(batch)
        if operators is None:
            return self.state.expected(partitions)
        period = (self.former.period(batch), partitions)
        if period not in self._expected:
            recorded = {operator: self.operator(operator, batch) for operator in operators}
            present = self.state.expected(partitions)
            self._expected[period] = tuple(
                key
                for operator, metadata in recorded.items()
                for key in (
                    recorded_stores(metadata, partitions)
                    if metadata
                    else (one for one in present if one.operator_id == operator)
                )
            )
        return self._expected[period]

    @cached_property
    def former(self) -> FormerMetadata:
        """The metadata of the state that migrations replaced."""
        return FormerMetadata.of(self.files)

    def _unique_id(self, store: StoreKey, version: int) -> str | None:
        commit = self.commits.get(batch_that_wrote(StateVersion(version)))
        return commit.unique_id(store) if commit else None

    def operator(self, operator_id: int, batch: int) -> OperatorMetadata | None:
        """Return an operator's metadata as of a batch; None if it does not exist or cannot be read."""
        folder = version_2_folder(operator_id)
        names = [*self.present_state.names.get(folder, []), *self.former.names(folder, batch)]
        path = metadata_path(operator_id, names, batch)
        try:
            return parse_operator_metadata(read_bytes(self.files, self.former.place(path, batch)), path)
        except CheckpointUnreadable:
            return None

    def source_folder(self, source: str) -> str:
        """Return the name of a source's folder under ``sources/``."""
        return self._source_folders.get(source, source)

    def source_in(self, folder: str) -> str:
        """Return the name, in the offset log, of a source that has a folder under ``sources/``."""
        return next((source for source, own in self._source_folders.items() if own == folder), folder)

    @cached_property
    def _source_folders(self) -> dict[str, str]:
        present = [entry.name for entry in list_entries(self.files, SOURCES) if entry.is_folder]
        newest = next((entry for number in reversed(self.offsets.ids) if (entry := self.offsets.get(number))), None)
        if newest is None or len(present) >= len(newest.sources):
            return {}
        entries = [entry for number in self.offsets.ids if (entry := self.offsets.get(number))]
        return source_folders(entries, present, self.job.source_order)

    def hint(self, source: str, value: Any = None) -> SourceHint:
        """Return what is known of a source besides its offset ``value``. Its log is read only if the offset is ambiguous."""
        certain = kind_by_form(value) not in (None, "kafka")
        if (source, certain) not in self._hints:
            found = NO_HINT if certain else self._hint_from_log(source)
            identity = self.identities.get(source)
            self._hints[source, certain] = _with_uri(found, identity.uri if identity else None)
        return self._hints[source, certain]

    def record_of(self, number: int) -> ProgressRecord | None:
        """Return the progress record of a batch; None if there is none, or if it is from before a rewind."""
        record, planned = self.progress.get(number), self.offsets.get(number)
        if record is None or planned is None or not planned.timestamp_ms:
            return None
        return record if record.ran_at(planned.timestamp_ms) else None

    @property
    def logged_at_ms(self) -> int | None:
        """When the newest entry of the logs was written; None if there is none or its time is unknown."""
        logs = (self.offsets, self.commits)
        times = (log.modified_ms(log.latest) for log in logs if log.latest is not None)
        return max((at_ms for at_ms in times if at_ms is not None), default=None)

    @cached_property
    def identities(self) -> dict[str, SourceIdentity]:
        """The sources of the newest readable batch, by their names in the offset log, in the order of the log."""
        newest = next((entry for number in reversed(self.offsets.ids) if (entry := self.offsets.get(number))), None)
        sources = in_order(newest.sources) if newest else ()
        several = len(sources) > 1
        described = self._described() if several else {}
        traits = {source.name: self._traits(source, described.get(source.name), several=several) for source in sources}
        names = {source: one.name for source, one in described.items() if one.name}
        order = self.job.source_order
        recorded = dict(zip(traits, order, strict=True)) if len(order) == len(traits) else {}
        names |= recorded or match_names(traits, self.job.sources)
        names |= {source: source for source in traits if not source.isdecimal()}
        return {
            source: SourceIdentity(
                source, _given(names.get(source)), found, self._uri(names.get(source), found, several)
            )
            for source, found in traits.items()
        }

    def _described(self) -> dict[str, SourceProgress]:
        """Return what the newest progress record shows of each source."""
        for number in reversed(self.offsets.ids[-_DESCRIBED_BATCHES:]):
            record = self.progress.get(number)
            if number < self.former.sources_since:
                break
            if record and record.sources:
                return {source.id: source for source in record.sources if source.id is not None}
        return {}

    def _traits(self, source: SourceOffset, described: SourceProgress | None, *, several: bool) -> SourceTraits:
        value = offset_value(source.text)
        if described is not None:
            found = traits_from_description(described.description, value)
            if found != SourceTraits():
                return found
        form = kind_by_form(value)
        hint = self._hint_from_log(source.name) if several or form is None else NO_HINT
        folder = folder_of_file(hint.path) if hint.path else None
        known = hint.initial if value is None else value
        return traits_from_offset(known, kind_of(known, hint, source.provider), folder)

    def _uri(self, name: str | None, traits: SourceTraits, several: bool) -> str | None:
        uris = self.job.sources
        if name is not None and name in uris:
            return uris[name]
        if not several:
            return self.job.source or next(iter(uris.values()), None)
        return shared_uri(traits, uris.values() or filter(None, [self.job.source]))

    def _hint_from_log(self, source: str) -> SourceHint:
        if source not in self._log_hints:
            self._log_hints[source] = self._read_hint(source)
        return self._log_hints[source]

    def _read_hint(self, source: str) -> SourceHint:
        folder = f"{SOURCES}/{self.source_folder(source)}"
        first = _first_log_name(entry.name for entry in list_entries(self.files, folder) if not entry.is_folder)
        if first is None:
            return NO_HINT
        try:
            return hint_from_source_log(read_bytes(self.files, f"{folder}/{first}"))
        except CheckpointUnreadable:
            return NO_HINT


def in_order(sources: Iterable[SourceOffset]) -> tuple[SourceOffset, ...]:
    """Return sources by number. Version 2 of the offset log writes them in the order of a hash table."""
    return tuple(sorted(sources, key=lambda source: int(source.name) if source.name.isdecimal() else -1))


def _with_uri(hint: SourceHint, uri: str | None) -> SourceHint:
    kind = uri_kind(uri)
    if kind is None or (hint.kind is not None and (hint.kind, kind) not in (("files", "table"), ("rate", "rate"))):
        return hint
    return replace(hint, kind=kind, rows_per_second=rows_per_second(uri))


def _given(name: str | None) -> str | None:
    """Return a name that a program gave a source; the sources of an attached query may have numbers instead."""
    return None if name is None or name.isdecimal() else name


def _first_log_name(names: Iterable[str]) -> str | None:
    numbered = [(number, name) for name in names if (number := log_id(name)) is not None]
    return min(numbered)[1] if numbered else None
