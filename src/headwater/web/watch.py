"""The current content of a checkpoint, polled by a thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.checkpoint.failures import FailureRecord, read_failures
from headwater.checkpoint.filetree import Entry as FileEntry
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.lease import Lease, live_lease
from headwater.checkpoint.plan_record import RecordedPlan, read_plans
from headwater.checkpoint.progress_files import ProgressTail
from headwater.checkpoint.record import JobRecord, ProgressRecord
from headwater.checkpoint.restore_points import RestorePoint, names_by_batch, restore_points
from headwater.checkpoint.runs import RunRecord, read_runs
from headwater.checkpoint.watermark_hold import WatermarkHold, watermark_hold
from headwater.core.errors import HeadwaterError, InternalError
from headwater.fleet.fleet import change_marker
from headwater.timemachine.fork import ORIGIN_FILE
from headwater.timemachine.journal import FOLDER as JOURNAL
from headwater.timemachine.journal import Entry, read_entries

POLL_SECONDS, REMOTE_POLL_SECONDS = 0.3, 2.0
LEASE_SECONDS = 2.0
FIRST_BATCHES = 500


@dataclass(frozen=True)
class Snapshot:
    """Everything that the page shows of a checkpoint, except state. ``version`` grows with every change."""

    version: int = 0
    batches: tuple[Batch, ...] = ()
    progress: dict[int, ProgressRecord] = field(default_factory=dict)
    journal: tuple[Entry, ...] = ()
    points: tuple[RestorePoint, ...] = ()
    lease: Lease | None = None
    job: JobRecord = field(default_factory=JobRecord)
    hold: WatermarkHold | None = None
    """The source that holds the watermark back, in a query with several."""
    plans: tuple[RecordedPlan, ...] = ()
    """What the state meant from which batch on."""
    failures: tuple[FailureRecord, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    origin: dict[str, Any] | None = None
    problem: HeadwaterError | None = None
    loading: bool = True

    @property
    def kept(self) -> dict[int, list[str]]:
        """The names of the restore points of the batches in the log."""
        return names_by_batch(self.points, {batch.batch_id: batch.committed_at_ms for batch in self.batches})

    @property
    def committed(self) -> list[int]:
        return [batch.batch_id for batch in self.batches if batch.status == "committed"]


class WatchedCheckpoint:
    """A checkpoint that is polled for changes. ``snapshot`` is consistent and can be read from any thread."""

    def __init__(self, name: str, open_files: Callable[[], FileTree]) -> None:
        self.name = name
        self.snapshot = Snapshot()
        self.files: FileTree | None = None
        self._open = open_files
        self._known: dict[int, Batch] = {}
        self._recorded: dict[int, int] = {}
        self._tail: ProgressTail | None = None
        self._journal: tuple[list[FileEntry], tuple[Entry, ...]] = ([], ())
        self._last_marker: object = None
        self._lease_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watch {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop polling, at once if nothing is being read. The caller does not wait for a store that does not answer."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait until polling has stopped, but no longer than some seconds."""
        self._thread.join(max(0.0, seconds))

    def _watch(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            self.poll()
            took = time.monotonic() - started
            remote = self.files is not None and not self.files.is_local
            # Polling a huge checkpoint takes long: spend at most half of the time on it.
            self._stop.wait(max(took, REMOTE_POLL_SECONDS if remote else POLL_SECONDS))

    def poll(self) -> None:
        """Publish a new snapshot if the checkpoint has changed."""
        try:
            if self.files is None:
                self.files = self._open()
            marker = change_marker(self.files)
            if marker != self._last_marker:
                self._refresh(self.files)
                self._last_marker = marker
            elif time.monotonic() - self._lease_at >= LEASE_SECONDS:
                self._check_lease(self.files)
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:
            # A running query may remove a file between listing and reading it. The next poll finds its successor.
            if self.files is None or not isinstance(error, OSError):
                self._fail(InternalError(error))

    def _fail(self, error: HeadwaterError) -> None:
        shown = self.snapshot.problem
        if shown is None or str(shown) != str(error):
            self._publish(replace(self.snapshot, problem=error, loading=False))

    def _refresh(self, files: FileTree) -> None:
        self._tail = self._tail or ProgressTail(files)
        progress = self._tail.records()
        history = History(files, progress)
        ids = history.batch_ids
        journal = self._read_journal(files)
        if len(journal) != len(self.snapshot.journal):
            self._known = {}  # a rewind or an undo may have changed any batch
        if not self._known and len(ids) > FIRST_BATCHES:
            # Reading many batches takes a second or two. Show the newest ones first.
            newest = tuple(history.batches(last=FIRST_BATCHES))
            self._publish(self._read(history, newest, progress, journal, loading=True))
        batches = self._batches(history, progress)
        self._publish(self._read(history, batches, progress, journal, loading=False))

    def _batches(self, history: History, progress: dict[int, ProgressRecord]) -> tuple[Batch, ...]:
        """Read the batches, except those that are known and cannot have changed."""
        commits = history.committed_at_ms
        found: dict[int, Batch] = {}
        for number in history.batch_ids:
            known = self._known.get(number)
            unchanged = known and known.status == "committed" and known.committed_at_ms == commits.get(number)
            # Spark reports a batch after its commit, and the report may complete what the logs show of it.
            complete = number not in progress or self._recorded.get(number) == progress[number].at_ms
            found[number] = known if known and unchanged and complete else history.batch(number)
        self._known = found
        self._recorded = {number: record.at_ms for number, record in progress.items()}
        self._recheck_oldest(history)
        return tuple(self._known.values())

    def _recheck_oldest(self, history: History) -> None:
        """Read the oldest batches again: Spark removes the oldest state first, and they can no longer be rewound to."""
        for number in history.batch_ids:
            if not self._known[number].can_rewind_to:
                continue
            self._known[number] = history.batch(number)
            if self._known[number].can_rewind_to:
                return

    def _read_journal(self, files: FileTree) -> tuple[Entry, ...]:
        """Return the changes, which are read again only if a file of the journal is new or another one."""
        listed = sorted(files.entries(JOURNAL), key=lambda entry: entry.name)
        if listed != self._journal[0]:
            self._journal = listed, tuple(read_entries(files))
        return self._journal[1]

    def _read(
        self,
        history: History,
        batches: tuple[Batch, ...],
        progress: dict[int, ProgressRecord],
        journal: tuple[Entry, ...],
        *,
        loading: bool,
    ) -> Snapshot:
        self._lease_at = time.monotonic()
        files, present = history.files, {batch.batch_id for batch in batches}
        return replace(
            self.snapshot,
            batches=batches,
            progress={number: record for number, record in progress.items() if number in present},
            hold=watermark_hold(history.logs, batches[-1].batch_id) if batches else None,
            journal=journal,
            points=tuple(restore_points(files)),
            lease=live_lease(files),
            job=history.logs.job,
            plans=read_plans(files),
            failures=read_failures(files),
            runs=read_runs(files),
            origin=_origin(files),
            problem=None,
            loading=loading,
        )

    def _check_lease(self, files: FileTree) -> None:
        self._lease_at = time.monotonic()
        lease = live_lease(files)
        if (lease is None) != (self.snapshot.lease is None) or (
            lease and self.snapshot.lease and lease.pid != self.snapshot.lease.pid
        ):
            self._publish(replace(self.snapshot, lease=lease))

    def _publish(self, snapshot: Snapshot) -> None:
        self.snapshot = replace(snapshot, version=self.snapshot.version + 1)


def _origin(files: FileTree) -> dict[str, Any] | None:
    try:
        origin = json.loads(files.read(ORIGIN_FILE))
    except (OSError, ValueError):
        return None
    return origin if isinstance(origin, dict) else None
