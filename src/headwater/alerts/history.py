"""The history of a stream as far as rules need it, read from its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.checkpoint.failures import FailureRecord, read_failures
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.progress_files import ProgressTail
from headwater.checkpoint.record import ProgressRecord
from headwater.guards.report import SourceReport


@dataclass(frozen=True)
class StreamHistory:
    """A stream at a moment. Values are None where they are unknown or do not apply."""

    name: str
    checkpoint: str
    records: tuple[ProgressRecord, ...] = ()
    """What Spark reported of its batches, oldest first."""
    last_batch: int | None = None
    last_commit_ms: int | None = None
    """When the last batch was committed; of a stream without one, when its first batch was planned."""
    watermark_ms: int | None = None
    failures: tuple[FailureRecord, ...] = ()
    sources: SourceReport | None = None


class HistoryReader:
    """Reads the history of a stream repeatedly; on a local disk, only the progress that was added since the last time."""

    def __init__(self, files: FileTree, name: str | None = None) -> None:
        self.files = files
        self._name = name
        self._tail = ProgressTail(files)

    def read(self, sources: SourceReport | None = None) -> StreamHistory:
        """Return the history as it is now."""
        progress = self._tail.records()
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


def _watermark(logs: CheckpointLogs, latest: int | None, done: int | None) -> int | None:
    planned = logs.offsets.get(latest) if latest is not None else None
    committed = logs.commits.get(done) if done is not None else None
    found = [planned.watermark_ms if planned else None, committed.next_watermark_ms if committed else None]
    return max((value for value in found if value), default=None)
