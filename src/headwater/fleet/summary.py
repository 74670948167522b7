"""One checkpoint in a few numbers, from its newest log entries and records. The state folder is not listed.

A summary holds facts and times, nothing that depends on when it is shown: the same files give the same summary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median
from typing import Any

from headwater.checkpoint.failures import FAILURES_FILE, FailureRecord, failure_of_last_run
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import change_times_ms
from headwater.checkpoint.layout import CASCADE_FILE, HEADWATER_FOLDER, JOURNAL_FOLDER, PENDING_FILE
from headwater.checkpoint.lease import CLOCK_SLACK_MS, ENDED, LOCK, RECORD, Lease, ended_ms, live_lease
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.moved import INCOMPLETE, POINTER, read_pointer
from headwater.checkpoint.record import JobRecord, ProgressRecord, newest_progress
from headwater.checkpoint.restore_points import FOLDER as KEPT
from headwater.checkpoint.restore_points import is_name
from headwater.checkpoint.runs import RUNS_FILE
from headwater.checkpoint.source_offsets import source_range
from headwater.checkpoint.watermark_hold import WatermarkHold, watermark_hold
from headwater.core.errors import HeadwaterError, InternalError
from headwater.fleet.endpoints import Endpoint, read_by, written_by
from headwater.fleet.newest_batches import newest_batches
from headwater.timemachine.fork import ORIGIN_FILE

RECENT_BATCHES = 30
LISTED_BATCHES = 64
# Without a record, the rows of a batch follow from two files of the log; few batches are enough for a line.
UNRECORDED_BATCHES = 16
REMOTE_UNRECORDED_BATCHES = 3
# Batches are recorded after their commit, and on an object store every few seconds.
AWAITED_RECORDS = 10
_LEAST_FOR_TREND = 6


@dataclass(frozen=True)
class RecentBatch:
    """A committed batch: when it was planned, its rows, and what its record shows, None where that is unknown."""

    batch_id: int
    at_ms: int | None
    rows: int | None = None
    duration_ms: int | None = None
    lag_rows: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    dropped: int = 0
    malformed: int = 0


@dataclass(frozen=True)
class StreamSummary:
    """What the table of streams shows of a checkpoint."""

    job: JobRecord = field(default_factory=JobRecord)
    lease: Lease | None = None
    has_lease_file: bool = False
    """Whether a process of Headwater has ever held the lease, so that its absence shows that the query has stopped."""
    ended_with_headwater: bool = False
    """Whether a Headwater job made the last commit."""
    last_planned: int | None = None
    last_committed: int | None = None
    planned_at_ms: int | None = None
    """When the newest batch was planned."""
    changed_at_ms: int | None = None
    """When the newest file of the logs was written."""
    is_unused_since_change: bool = False
    """Whether nothing has run since the last change by Headwater, such as a rewind."""
    failure: FailureRecord | None = None
    """The failure that ended the last run, if nothing has run or changed since."""
    watermark_ms: int | None = None
    hold: WatermarkHold | None = None
    recent: tuple[RecentBatch, ...] = ()
    is_recorded: bool = False
    """Whether ``recent`` comes from progress records, which know lag, state and dropped rows."""
    points: int = 0
    has_pending_change: bool = False
    reads: tuple[Endpoint, ...] = ()
    writes: tuple[Endpoint, ...] = ()
    forked_from: str | None = None
    moved_to: str | None = None
    """Where ``headwater move`` has taken the checkpoint. This one is what it left."""
    is_incomplete_copy: bool = False
    """Whether a move into this folder was interrupted."""
    problem: HeadwaterError | None = None
    """Why the checkpoint cannot be read; the other fields are then incomplete."""

    @property
    def last_batch(self) -> int | None:
        """The newest batch, committed or planned."""
        return max((number for number in (self.last_planned, self.last_committed) if number is not None), default=None)

    @property
    def is_uncommitted(self) -> bool:
        """Whether the newest batch is planned and not committed."""
        return self.last_batch is not None and self.last_batch != self.last_committed

    @property
    def input_rate(self) -> float | None:
        """Rows per second over the recent batches; None if unknown."""
        timed = [batch for batch in self.recent if batch.at_ms is not None]
        # The first batch may have read what had accumulated before it, and its rows may be unknown.
        rows = [batch.rows for batch in timed[1:] if batch.rows is not None]
        if not rows or len(rows) < len(self.recent) - 1:
            return None
        span_ms = (timed[-1].at_ms or 0) - (timed[0].at_ms or 0)
        return sum(rows) * 1000 / span_ms if span_ms > 0 else None

    @property
    def processed_rate(self) -> float | None:
        """Rows per second of the time that batches took; None if unknown."""
        known = [batch for batch in self.recent if batch.rows and batch.duration_ms]
        return (
            sum(batch.rows or 0 for batch in known) * 1000 / sum(batch.duration_ms or 0 for batch in known)
            if known
            else None
        )

    @property
    def busy(self) -> float | None:
        """The share of the time in which a batch was running; None if unknown."""
        timed = [batch for batch in self.recent[:-1] if batch.at_ms is not None and batch.duration_ms is not None]
        if len(timed) < _LEAST_FOR_TREND:
            return None
        span_ms = (self.recent[-1].at_ms or 0) - (timed[0].at_ms or 0)
        return sum(batch.duration_ms or 0 for batch in timed) / span_ms if span_ms > 0 else None

    @property
    def median_duration_ms(self) -> int | None:
        known = [batch.duration_ms for batch in self.recent if batch.duration_ms is not None]
        return int(median(known)) if known else None

    @property
    def lag_rows(self) -> int | None:
        """The unread records when the newest batch with a record was planned."""
        return self.recent[-1].lag_rows if self.recent else None

    @property
    def lag_growth(self) -> float | None:
        """How much the lag grew over the recent batches, as a share of what it was; None if unknown."""
        return growth([batch.lag_rows for batch in self.recent])

    @property
    def state_rows(self) -> int | None:
        return self.recent[-1].state_rows if self.recent else None

    @property
    def state_bytes(self) -> int | None:
        return self.recent[-1].state_bytes if self.recent else None

    @property
    def state_growth(self) -> float | None:
        """How much the state grew over the recent batches, as a share of what it was; None if unknown."""
        return growth([batch.state_rows for batch in self.recent])

    @property
    def rows(self) -> int | None:
        """Rows of the recent batches as far as they are known; None if they are known for none."""
        known = [batch.rows for batch in self.recent if batch.rows is not None]
        return sum(known) if known else None

    @property
    def dropped(self) -> int | None:
        """Late rows of the recent batches; None without records."""
        return sum(batch.dropped for batch in self.recent) if self.is_recorded else None

    @property
    def malformed(self) -> int | None:
        """Malformed rows of the recent batches; None without records."""
        return sum(batch.malformed for batch in self.recent) if self.is_recorded else None


def growth(numbers: Sequence[int | None]) -> float | None:
    """Return how much larger the last third of some numbers is than the first one; None if there are too few."""
    known = [number for number in numbers if number is not None]
    if len(known) < _LEAST_FOR_TREND:
        return None
    third = len(known) // 3
    before, after = sum(known[:third]) / third, sum(known[-third:]) / third
    if before == 0:
        return None if after else 0.0
    return after / before - 1


def read_summary(files: FileTree) -> StreamSummary:
    """Return the summary of a checkpoint. One that cannot be read has a ``problem``; bad data never raises."""
    try:
        return _Reading(newest_batches(files, LISTED_BATCHES)).summary()
    except HeadwaterError as error:
        return StreamSummary(problem=error)
    except Exception as error:  # one checkpoint must not hide the others
        return StreamSummary(problem=InternalError(error))


class _Reading:
    def __init__(self, files: FileTree) -> None:
        self._files = files
        self._progress = newest_progress(files, RECENT_BATCHES)
        self._logs = CheckpointLogs(files, self._progress)
        self._own = {entry.name: entry for entry in files.entries(HEADWATER_FOLDER)}

    def summary(self) -> StreamSummary:
        logs = self._logs
        newest = logs.batch_ids[-1] if logs.batch_ids else None
        planned = logs.offsets.get(newest) if newest is not None else None
        recent, is_recorded = self._recent()
        planned_at = (planned.timestamp_ms or None) if planned else None
        problem = logs.offsets.outcome(newest).error if newest is not None and newest in logs.offsets.entries else None
        return StreamSummary(
            job=logs.job,
            lease=live_lease(self._files) if self._has_lease_file else None,
            has_lease_file=self._has_lease_file,
            ended_with_headwater=self._ended_with_headwater(),
            last_planned=logs.offsets.latest,
            last_committed=logs.commits.latest,
            planned_at_ms=planned_at if planned_at or newest is None else logs.offsets.modified_ms(newest),
            changed_at_ms=self._logs.logged_at_ms,
            is_unused_since_change=self._is_unused_since_change(),
            failure=failure_of_last_run(self._files, self._logs.logged_at_ms) if self._has(FAILURES_FILE) else None,
            watermark_ms=(planned.watermark_ms or None) if planned else None,
            hold=watermark_hold(logs, newest) if newest is not None else None,
            recent=recent,
            is_recorded=is_recorded,
            points=self._points(),
            has_pending_change=self._has(PENDING_FILE) or self._has(CASCADE_FILE),
            reads=read_by(logs),
            writes=written_by(logs.job),
            forked_from=self._origin(),
            moved_to=self._moved_to(),
            is_incomplete_copy=self._has(INCOMPLETE),
            problem=problem,
        )

    @property
    def _has_lease_file(self) -> bool:
        return self._has(LOCK) or self._has(RECORD)

    def _has(self, path: str) -> bool:
        """Return whether there is a file or folder of Headwater, from one listing."""
        return path.rpartition("/")[2] in self._own

    def _recent(self) -> tuple[tuple[RecentBatch, ...], bool]:
        records = self._valid_records()
        if records:
            return tuple(_recorded_batch(record) for record in records), True
        most = UNRECORDED_BATCHES if self._files.is_local else REMOTE_UNRECORDED_BATCHES
        return tuple(self._unrecorded_batch(number) for number in self._logs.commits.ids[-most:]), False

    def _valid_records(self) -> list[ProgressRecord]:
        """Return the records of batches in the log, oldest first, without those of batches from before a rewind.

        The newest one is compared with its log entry. An earlier one that is from before a rewind began later than the
        batch after it. The newest batches may not be recorded yet.
        """
        numbers = self._logs.commits.ids[-RECENT_BATCHES:]
        awaited = takewhile(lambda number: not self._is_recorded(number), reversed(numbers[-AWAITED_RECORDS:]))
        found: list[ProgressRecord] = []
        for number in reversed(numbers[: len(numbers) - len(list(awaited))]):
            record = self._progress.get(number)
            if record is None or (found and record.at_ms > found[-1].at_ms):
                break
            if not found and not self._is_recorded(number):
                break
            found.append(record)
        return found[::-1]

    def _is_recorded(self, number: int) -> bool:
        return number in self._progress and self._logs.record_of(number) is not None

    def _unrecorded_batch(self, number: int) -> RecentBatch:
        entry, before = self._logs.offsets.get(number), self._logs.offsets.get(number - 1)
        at_ms = entry.timestamp_ms or None if entry else None
        committed_ms = self._logs.commits.modified_ms(number)
        rows: int | None = None
        if entry is not None and (before is not None or number == 0):
            earlier = {source.name: source.text for source in before.sources} if before else {}
            counts = [
                source_range(source.name, earlier.get(source.name), source.text, start_known=True).rows
                for source in entry.sources
            ]
            rows = None if any(count is None for count in counts) else sum(count or 0 for count in counts)
        took = committed_ms - at_ms if committed_ms is not None and at_ms is not None else None
        return RecentBatch(number, at_ms, rows, took if took is not None and took >= 0 else None)

    def _ended_with_headwater(self) -> bool:
        changed_at = self._logs.logged_at_ms
        if changed_at is not None and self._has(ENDED) and changed_at <= ended_ms(self._files):
            return True
        last = self._logs.commits.latest
        if last is None or last != self._logs.batch_ids[-1]:
            return False
        record, written_ms = self._progress.get(last), self._logs.commits.modified_ms(last)
        return record is not None and written_ms is not None and record.ran_at(written_ms, CLOCK_SLACK_MS)

    def _is_unused_since_change(self) -> bool:
        changes = change_times_ms(self._files) if self._has(JOURNAL_FOLDER) else ()
        runs = self._own.get(RUNS_FILE.rpartition("/")[2])
        used_at_ms = max(self._logs.logged_at_ms or 0, (runs.modified_ms if runs else None) or 0)
        return bool(changes) and changes[-1] >= used_at_ms

    def _points(self) -> int:
        if not self._has(KEPT):
            return 0
        return sum(is_name(name) for name in self._files.names(KEPT).folders)

    def _moved_to(self) -> str | None:
        pointer = read_pointer(self._files) if self._has(POINTER) else None
        return pointer.to if pointer else None

    def _origin(self) -> str | None:
        if not self._has(ORIGIN_FILE):
            return None
        try:
            origin: Any = json.loads(self._files.read(ORIGIN_FILE))
        except (OSError, ValueError):
            return None
        found = origin.get("checkpoint") if isinstance(origin, dict) else None
        return found if isinstance(found, str) else None


def _recorded_batch(record: ProgressRecord) -> RecentBatch:
    return RecentBatch(
        record.batch_id,
        record.at_ms,
        record.input_rows,
        record.duration_ms or None,
        record.lag_rows,
        record.state_rows,
        record.state_bytes,
        record.dropped,
        record.malformed,
    )
