"""A checkpoint's logs as batches: input, times, watermark, files, and whether the stream can be rewound to each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from headwater.checkpoint.file_logs import FileEntry, FileSinkLog, FileSourceLog
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import JOURNAL_FOLDER, SOURCES
from headwater.checkpoint.lease import CLOCK_SLACK_MS
from headwater.checkpoint.log_entries import OffsetEntry
from headwater.checkpoint.logs import CheckpointLogs, Progress, in_order
from headwater.checkpoint.operator_metadata import version_1_path, version_2_folder
from headwater.checkpoint.record import ProgressRecord, SourceProgress
from headwater.checkpoint.source_names import SourceIdentity
from headwater.checkpoint.source_offsets import SourceRange, log_offset, offset_value, source_range
from headwater.checkpoint.state_folder import Recipe, missing_logs, missing_state, state_obstacle
from headwater.core.errors import CheckpointUnreadable
from headwater.core.ids import BatchId, StateVersion, StoreKey, version_written_by

Status = Literal["committed", "planned"]


@dataclass(frozen=True)
class Batch:
    """A batch. ``problem`` is set if some of its files are unreadable; the other attributes are then incomplete."""

    batch_id: BatchId
    status: Status
    planned_at_ms: int | None
    committed_at_ms: int | None
    watermark_ms: int | None
    sources: tuple[SourceRange, ...]
    state_version: StateVersion | None
    stores: int
    stores_missing: int
    why_not: str | None
    problem: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    next_watermark_ms: int | None = None
    obstacle: Literal["logs", "state"] | None = field(default=None, repr=False)
    """What prevents a rewind to this batch: something about its logs, or state that cannot be rebuilt."""
    duration_ms: int | None = field(default=None, repr=False)
    """How long the batch took: as recorded, or from its plan to its commit. None if unknown, or if a clock was set back."""

    @property
    def can_rewind_to(self) -> bool:
        """Whether the stream can be rewound to this batch; otherwise ``why_not`` is the reason."""
        return self.why_not is None

    @property
    def rows(self) -> int | None:
        """Rows read from all sources; None if unknown for any of them."""
        counts = [source.rows for source in self.sources]
        known = [count for count in counts if count is not None]
        return sum(known) if counts and len(known) == len(counts) else None

    @property
    def watermark_lag_ms(self) -> int | None:
        """How far the watermark lags the time at which the batch was planned."""
        if self.planned_at_ms is None or self.watermark_ms is None:
            return None
        return self.planned_at_ms - self.watermark_ms


class History:
    """The batches of a checkpoint, read lazily. Create a new one to see batches that were added since.

    ``progress`` are the progress records, if they were read already.
    """

    def __init__(self, files: FileTree, progress: Progress | None = None) -> None:
        self.files = files
        self.logs = CheckpointLogs(files, progress)
        self._source_logs: dict[str, FileSourceLog] = {}

    @property
    def batch_ids(self) -> tuple[BatchId, ...]:
        return tuple(BatchId(number) for number in self.logs.batch_ids)

    @property
    def last_committed(self) -> BatchId | None:
        latest = self.logs.commits.latest
        return None if latest is None else BatchId(latest)

    @property
    def committed_at_ms(self) -> dict[int, int | None]:
        """The commit time of each committed batch, from a listing."""
        return {number: self.logs.commits.modified_ms(number) for number in self.logs.commits.ids}

    def batches(self, *, last: int | None = None, since_ms: int | None = None) -> list[Batch]:
        """Return batches, oldest first: the ``last`` N, or those planned at ``since_ms`` or later."""
        wanted = self.batch_ids if last is None else self.batch_ids[max(0, len(self.batch_ids) - last) :]
        if since_ms is None:
            return [self.batch(number) for number in wanted]
        return list(reversed(list(self._since(wanted, since_ms))))

    def _since(self, wanted: tuple[BatchId, ...], since_ms: int) -> Iterator[Batch]:
        for number in reversed(wanted):
            batch = self.batch(number)
            at = batch.committed_at_ms if batch.planned_at_ms is None else batch.planned_at_ms
            if at is not None and at < since_ms:
                return
            yield batch

    def batch(self, number: BatchId) -> Batch:
        """Return a batch that is in the logs, even if unreadable; ``ValueError`` if it is not in the logs."""
        if number not in self.logs.offsets.entries and number not in self.logs.commits.entries:
            raise ValueError(f"batch {number} is not in the logs")
        problems = []
        planned = self.logs.offsets.outcome(number)
        done = self.logs.commits.outcome(number) if number in self.logs.commits.entries else None
        for error in (planned.error, done.error if done else None):
            if error is not None:
                problems.append(error.problem)
        entry = planned.entry
        committed = self.logs.commits.latest is not None and number <= self.logs.commits.latest
        expected = self.logs.expected_stores(number)
        missing = missing_state(number, self.logs.state, expected) if expected and committed else []
        in_logs = self._why_not(number, committed=committed, problems=problems)
        planned_at_ms, committed_at_ms = self._planned_at(number, entry), self.logs.commits.modified_ms(number)
        return Batch(
            batch_id=number,
            status="committed" if committed else "planned",
            planned_at_ms=planned_at_ms,
            committed_at_ms=committed_at_ms,
            watermark_ms=(entry.watermark_ms or None) if entry else None,
            sources=self._sources(number, entry) if entry else (),
            state_version=version_written_by(number) if expected and committed else None,
            stores=len(expected),
            stores_missing=len(missing),
            why_not=in_logs or state_obstacle(number, missing),
            problem="; ".join(problems) or None,
            conf=entry.conf if entry else {},
            next_watermark_ms=done.entry.next_watermark_ms if done and done.entry else None,
            obstacle="logs" if in_logs else "state" if missing else None,
            duration_ms=self._duration_ms(number, planned_at_ms, committed_at_ms),
        )

    def _duration_ms(self, number: int, planned_at_ms: int | None, committed_at_ms: int | None) -> int | None:
        if committed_at_ms is None:
            return None
        record = self.logs.progress.get(number)
        if record is not None and record.ran_at(committed_at_ms, CLOCK_SLACK_MS) and record.duration_ms:
            return record.duration_ms
        # A batch that runs again after a rewind keeps the time of its first plan, and maybe the record of its first run.
        if planned_at_ms is not None and any(planned_at_ms < at < committed_at_ms for at in self._changed_at_ms):
            return None
        record = self.logs.record_of(number)  # a copy of a checkpoint has other times of files
        if record is not None and record.duration_ms:
            return record.duration_ms
        if planned_at_ms is None or committed_at_ms < planned_at_ms:
            return None
        return committed_at_ms - planned_at_ms

    @cached_property
    def _changed_at_ms(self) -> tuple[int, ...]:
        """When Headwater changed the checkpoint, from a listing of the journal."""
        return change_times_ms(self.files)

    def _planned_at(self, number: int, entry: OffsetEntry | None) -> int | None:
        if entry and entry.timestamp_ms:
            return entry.timestamp_ms
        return self.logs.offsets.modified_ms(number)

    def _why_not(self, number: BatchId, *, committed: bool, problems: list[str]) -> str | None:
        if not committed:
            return "it is planned but not committed"
        if problems:
            return problems[0]
        logs = self.logs
        return missing_logs(
            number, logs.offsets.entries, logs.commits.entries, stateful=bool(logs.state.stores)
        ) or self._unreadable_neighbor(number)

    def _unreadable_neighbor(self, number: int) -> str | None:
        """Return the problem with the adjacent offsets: to resume after a batch, Spark has to read one of the two."""
        adjacent = [beside for beside in (number + 1, number - 1) if beside in self.logs.offsets.entries]
        errors = [error for beside in adjacent if (error := self.logs.offsets.outcome(beside).error)]
        return errors[0].problem if number > 0 and errors and len(errors) == len(adjacent) else None

    def _sources(self, number: int, entry: OffsetEntry) -> tuple[SourceRange, ...]:
        before = self.logs.offsets.get(number - 1)
        earlier = {source.name: source.text for source in before.sources} if before else {}
        start_known = number == 0 or before is not None
        recorded = self._recorded(number, entry)
        found = []
        for source in in_order(entry.sources):
            reads = source_range(
                source.name,
                earlier.get(source.name),
                source.text,
                start_known=start_known,
                hint=self.logs.hint(source.name, offset_value(source.text)),
                provider=source.provider,
            )
            if reads.kind in ("files", "table") and start_known:
                reads = self._with_files(reads)
            found.append(self._described(reads, recorded.get(source.name)))
        return tuple(found)

    def _recorded(self, number: int, entry: OffsetEntry) -> dict[str | None, SourceProgress]:
        """Return what the progress record of a batch shows, by source."""
        record = self.logs.record_of(number)
        if record is None or number < self.logs.former.sources_since:
            return {}
        if len(entry.sources) == 1:
            total = SourceProgress(records=record.input_rows, lag_rows=record.lag_rows)
            return {entry.sources[0].name: record.sources[0] if len(record.sources) == 1 else total}
        return {source.id: source for source in record.sources}

    def _described(self, reads: SourceRange, recorded: SourceProgress | None) -> SourceRange:
        identity = self.logs.identities.get(reads.name) or SourceIdentity(reads.name)
        found = replace(
            reads, given_name=identity.name, description=identity.description or reads.kind, uri=identity.uri
        )
        if recorded is None:
            return found
        # Offsets are exact; Spark's own count doubles if the batch is evaluated twice.
        return replace(found, rows=recorded.records if reads.rows is None else reads.rows, lag=recorded.lag_rows)

    def _with_files(self, reads: SourceRange) -> SourceRange:
        end = log_offset(reads.end)
        start = log_offset(reads.start) if reads.start is not None else -1
        if not reads.moved or end is None or start is None:
            return replace(reads, files=0 if not reads.moved else None)
        try:
            return replace(reads, files=self.source_log(reads.name).count_between(start, end))
        except CheckpointUnreadable:
            return reads

    def source_log(self, name: str) -> FileSourceLog:
        """Return the log of a file source."""
        if name not in self._source_logs:
            self._source_logs[name] = FileSourceLog(self.files, f"{SOURCES}/{self.logs.source_folder(name)}")
        return self._source_logs[name]

    def input_files(self, name: str, start: Any, end: Any) -> tuple[FileEntry, ...] | None:
        """Return the input files of a file source between two offsets; None if its log no longer lists them."""
        first, last = -1 if start is None else log_offset(start), log_offset(end)
        return None if last is None else self.source_log(name).entries_between(-1 if first is None else first, last)


def change_times_ms(files: FileTree) -> tuple[int, ...]:
    """Return when Headwater changed a checkpoint, oldest first, from a listing of its journal."""
    times = (entry.modified_ms for entry in files.entries(JOURNAL_FOLDER) if entry.name.endswith(".json"))
    return tuple(sorted(at_ms for at_ms in times if at_ms is not None))


@dataclass(frozen=True)
class StoreState:
    """A store as of a batch. ``recipe`` is None if that version can no longer be rebuilt."""

    key: StoreKey
    operator: str | None
    version: StateVersion
    recipe: Recipe | None


@dataclass(frozen=True)
class BatchFiles:
    """The files of a batch in the checkpoint, its input files by source, and its stores."""

    paths: tuple[str, ...]
    inputs: dict[str, tuple[str, ...]]
    stores: tuple[StoreState, ...]


def files_of(history: History, batch: Batch) -> BatchFiles:
    """Return the files that belong to a batch, without those that are missing or unreadable."""
    stores = tuple(_stores(history, batch))
    paths = [*_log_paths(history, batch), *_state_paths(stores)]
    return BatchFiles(tuple(dict.fromkeys(paths)), _inputs(history, batch), stores)


def _stores(history: History, batch: Batch) -> Iterator[StoreState]:
    if batch.status == "planned":
        return
    version = version_written_by(batch.batch_id)
    tree = history.logs.state
    names = {number: history.logs.operator(number, batch.batch_id) for number in tree.operators}
    for key in history.logs.expected_stores(batch.batch_id):
        about = names.get(key.operator_id)
        yield StoreState(key, about.operator_name if about else None, version, tree.store(key).recipe(version))


def _log_paths(history: History, batch: Batch) -> Iterator[str]:
    logs = history.logs
    for log in (logs.offsets, logs.commits):
        if batch.batch_id in log.entries:
            yield log.path(batch.batch_id)
    for source in batch.sources:
        end = log_offset(source.end) if source.kind in ("files", "table") else None
        name = None if end is None else history.source_log(source.name).names.holder_of(end)
        if name is not None:
            yield f"{SOURCES}/{logs.source_folder(source.name)}/{name}"
    for operator in logs.state.operators:
        if str(batch.batch_id) in logs.state.names.get(version_2_folder(operator), ()):
            yield f"{version_2_folder(operator)}/{batch.batch_id}"
        elif "metadata" in logs.state.names.get(version_1_path(operator).removesuffix("/metadata"), ()):
            yield version_1_path(operator)


def _state_paths(stores: tuple[StoreState, ...]) -> Iterator[str]:
    for store in stores:
        if store.recipe is not None:
            names = (*((store.recipe.snapshot,) if store.recipe.snapshot else ()), *store.recipe.changes)
            yield from (f"{store.key.folder}/{name}" for name in names)


def _inputs(history: History, batch: Batch) -> dict[str, tuple[str, ...]]:
    found = {}
    for source in batch.sources:
        if source.files is None:
            continue
        try:
            entries = history.input_files(source.name, source.start, source.end)
        except CheckpointUnreadable:
            continue
        if entries is not None:
            found[source.name] = tuple(entry.path for entry in entries)
    return found


def stuck_batch(logs: CheckpointLogs, sink: FileTree | None) -> int | None:
    """Return the batch that is in the sink's log but not committed, if Spark cannot recover from that."""
    if sink is None or not logs.is_format_two:
        return None
    newest, done = FileSinkLog(sink).names.latest, logs.commits.ids[-1]
    planned = logs.offsets.ids[-1] if logs.offsets.ids else done
    return newest if newest is not None and done < newest <= planned else None


def clean_batches(history: History, batch_ids: Iterable[int]) -> set[int]:
    """Return the batches whose progress record shows neither late nor malformed records.

    A record of an earlier run of the batch, from before a rewind, does not count. Neither does one of an attached program,
    whose malformed records nothing counts.
    """
    records = {number: history.logs.record_of(number) for number in batch_ids}
    return {number for number, record in records.items() if record and _shows_no_drops(record)}


def _shows_no_drops(record: ProgressRecord) -> bool:
    is_counted = not record.sources or any(source.malformed is not None for source in record.sources)
    return not record.dropped and not record.malformed and (is_counted or not record.input_rows)
