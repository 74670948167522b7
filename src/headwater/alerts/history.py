"""The history of a stream as far as rules need it, read from its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.checkpoint.failures import FailureRecord, read_failures
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.progress_files import RecentProgress
from headwater.checkpoint.record import ProgressRecord
from headwater.guards.report import SourceReport


@dataclass(frozen=True)
class StreamHistory:
    """A stream at a moment. Values are None where they are unknown or do not apply."""

    name: str
    checkpoint: str
    records: tuple[ProgressRecord, ...] = ()
    """What Spark reported of the batches that rules look back at, oldest first; without durations and sources."""
    last_batch: int | None = None
    last_commit_ms: int | None = None
    """When the last batch was committed; of a stream without one, when its first batch was planned."""
    watermark_ms: int | None = None
    failures: tuple[FailureRecord, ...] = ()
    sources: SourceReport | None = None


class HistoryReader:
    """Reads the history of a stream repeatedly; on a local disk, only the progress that was added since the last time.

    ``records_ms`` is how far rules look back at the records of batches; 0 if none does.
    """

    def __init__(self, files: FileTree, name: str | None = None, *, records_ms: int = 0) -> None:
        self.files = files
        self._name = name
        self._records_ms = records_ms
        self._recent = RecentProgress(files, keep=_without_parts)

    def read(self, now_ms: int, sources: SourceReport | None = None) -> StreamHistory:
        """Return the history as it is now."""
        progress = self._recent.since(now_ms - self._records_ms) if self._records_ms else {}
        local = self.files.local_path()
        location = self.files.location if local is None else str(local.absolute())
        logs = CheckpointLogs(self.files, progress)
        latest, done = logs.offsets.latest, logs.commits.latest
        # Records of batches that were rewound stay in the file until these batches have run again.
        newest = max(-1 if latest is None else latest, -1 if done is None else done)
        records = sorted((record for number, record in progress.items() if number <= newest), key=lambda one: one.at_ms)
        committed_ms = logs.commits.modified_ms(done) if done is not None else None
        if committed_ms is None and logs.offsets.ids:
            committed_ms = logs.offsets.modified_ms(logs.offsets.ids[0])
        return StreamHistory(
            self._name or logs.job.job or location.rstrip("/").rpartition("/")[2],
            location,
            tuple(records),
            done,
            committed_ms,
            _watermark(logs, latest, done),
            read_failures(self.files),
            sources,
        )


def _without_parts(record: ProgressRecord) -> ProgressRecord:
    """Return what rules need of a record. The rest is most of its size, and a page keeps records of many streams."""
    return replace(record, durations_ms={}, sources=(), watermarks=())


def _watermark(logs: CheckpointLogs, latest: int | None, done: int | None) -> int | None:
    planned = logs.offsets.get(latest) if latest is not None else None
    committed = logs.commits.get(done) if done is not None else None
    found = [planned.watermark_ms if planned else None, committed.next_watermark_ms if committed else None]
    return max((value for value in found if value), default=None)
