"""A checkpoint as it is now, looked at again and again by a thread of its own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import Batch, History
from headwater.checkpoint.layout import COMMITS, OFFSETS, OURS
from headwater.checkpoint.lease import Lease, live_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import PROGRESS_FILE, JobRecord, ProgressRecord, ProgressTail, read_job_record
from headwater.core.errors import HeadwaterError, Surprise
from headwater.timemachine.fork import ORIGIN_FILE
from headwater.timemachine.journal import FOLDER as JOURNAL
from headwater.timemachine.journal import Entry, read_entries

POLL_SECONDS, REMOTE_POLL_SECONDS = 0.3, 2.0
LEASE_SECONDS = 2.0
FIRST_LOOK = 500


@dataclass(frozen=True)
class Snapshot:
    """All that the page shows of a checkpoint, except state. ``version`` grows whenever any of it has changed."""

    version: int = 0
    batches: tuple[Batch, ...] = ()
    progress: dict[int, ProgressRecord] = field(default_factory=dict)
    journal: tuple[Entry, ...] = ()
    lease: Lease | None = None
    job: JobRecord = field(default_factory=JobRecord)
    origin: dict[str, Any] | None = None
    problem: HeadwaterError | None = None
    loading: bool = True

    @property
    def committed(self) -> list[int]:
        return [batch.batch_id for batch in self.batches if batch.status == "committed"]


class Watched:
    """One checkpoint. ``snapshot`` is always whole and can be read from any thread."""

    def __init__(self, name: str, opened: Callable[[], FileTree]) -> None:
        self.name = name
        self.snapshot = Snapshot()
        self.files: FileTree | None = None
        self._open = opened
        self._known: dict[int, Batch] = {}
        self._tail: ProgressTail | None = None
        self._seen: object = None
        self._lease_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watch {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            self.look()
            took = time.monotonic() - began
            remote = self.files is not None and not self.files.is_local
            # A look at a huge checkpoint may take long: never more than half of the time goes into looking.
            self._stop.wait(max(took, REMOTE_POLL_SECONDS if remote else POLL_SECONDS))

    def look(self) -> None:
        """See what is new, if anything is."""
        try:
            if self.files is None:
                self.files = self._open()
            marks = _marks(self.files)
            lease_due = time.monotonic() - self._lease_at >= LEASE_SECONDS
            if marks != self._seen:
                self._refresh(self.files)
                self._seen = marks
            elif lease_due:
                self._look_at_lease(self.files)
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:
            # A live query moves files under our eyes; the next look will see them in place.
            if self.files is None or not isinstance(error, OSError):
                self._fail(Surprise(error))

    def _fail(self, error: HeadwaterError) -> None:
        held = self.snapshot.problem
        if held is None or str(held) != str(error):
            self._publish(replace(self.snapshot, problem=error, loading=False))

    def _refresh(self, files: FileTree) -> None:
        history = History(files)
        ids = history.batch_ids
        journal = tuple(read_entries(files))
        if len(journal) != len(self.snapshot.journal):
            self._known = {}  # files have come and gone in ways that Spark's own habits do not explain
        if not self._known and len(ids) > FIRST_LOOK:
            # Many batches take a second or two to read: the newest are shown meanwhile.
            newest = tuple(history.batches(last=FIRST_LOOK))
            self._publish(self._read(files, newest, journal, loading=True))
        self._publish(self._read(files, self._batches(history), journal, loading=False))

    def _batches(self, history: History) -> tuple[Batch, ...]:
        """What was read before is kept, where it cannot have changed since."""
        commits = history.committed_at_ms
        found: dict[int, Batch] = {}
        for number in history.batch_ids:
            held = self._known.get(number)
            settled = held is not None and held.status == "committed" and held.committed_at_ms == commits.get(number)
            found[number] = held if settled and held is not None else history.batch(number)
        self._known = found
        self._recheck_oldest(history)
        return tuple(self._known.values())

    def _recheck_oldest(self, history: History) -> None:
        """Spark removes the oldest state first, so whether one can rewind changes from that end; neighbours count too."""
        for number in history.batch_ids:
            held = self._known[number]
            if not held.can_rewind_to:
                continue
            now = history.batch(number)
            self._known[number] = now
            if now.can_rewind_to:
                return

    def _read(
        self, files: FileTree, batches: tuple[Batch, ...], journal: tuple[Entry, ...], *, loading: bool
    ) -> Snapshot:
        self._lease_at = time.monotonic()
        present = {batch.batch_id for batch in batches}
        self._tail = self._tail or ProgressTail(files)
        progress = {number: record for number, record in self._tail.records().items() if number in present}
        return replace(
            self.snapshot,
            batches=batches,
            progress=progress,
            journal=journal,
            lease=live_lease(files),
            job=read_job_record(files),
            origin=_origin(files),
            problem=None,
            loading=loading,
        )

    def _look_at_lease(self, files: FileTree) -> None:
        self._lease_at = time.monotonic()
        lease = live_lease(files)
        if (lease is None) != (self.snapshot.lease is None) or (
            lease and self.snapshot.lease and lease.pid != self.snapshot.lease.pid
        ):
            self._publish(replace(self.snapshot, lease=lease))

    def _publish(self, snapshot: Snapshot) -> None:
        self.snapshot = replace(snapshot, version=self.snapshot.version + 1)


def _marks(files: FileTree) -> object:
    """Something that differs whenever anything worth a new look has happened; cheap on a disk."""
    if isinstance(files, LocalTree):
        found = []
        for path in (OFFSETS, COMMITS, OURS, JOURNAL, PROGRESS_FILE):
            with suppress(OSError):
                info = files.path_of(path).stat()
                found.append((path, info.st_mtime_ns, info.st_size))
        return found
    return [
        [(entry.name, entry.modified_ms) for entry in files.entries(folder)] for folder in (OFFSETS, COMMITS, JOURNAL)
    ]


def _origin(files: FileTree) -> dict[str, Any] | None:
    try:
        held = json.loads(files.read(ORIGIN_FILE))
    except (OSError, ValueError):
        return None
    return held if isinstance(held, dict) else None
