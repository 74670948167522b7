"""Cutting back a file sink: Spark silently skips every batch that its log has seen, so the log has to go back too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headwater.checkpoint.file_sink_log import FileSinkLog, SinkFile, log_with
from headwater.checkpoint.files import Files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import SINK_LOG
from headwater.core.errors import ChangeRefused
from headwater.timemachine.log_cut import LogCut, cut_log, needs_rebuilding


@dataclass(frozen=True)
class SinkCut:
    """The cut of ``_spark_metadata``, and the data files that only the undone batches wrote."""

    log: LogCut
    data: tuple[str, ...]


def cut_sink(history: History, sink: Files, next_batch: int) -> SinkCut:
    """Drop the entries of the undone batches and set their data files aside."""
    log = FileSinkLog(sink)
    last_kept = next_batch - 1
    rebuild = needs_rebuilding(log.names, last_kept)
    kept = _kept_by_time(history, log, next_batch) if rebuild else _entries(log, log.names.needed_for(last_kept))
    undone = _entries(log, tuple(number for number in log.names.ids if number >= next_batch))
    kept_paths = {entry.path for entry in kept}
    data = tuple(
        sorted(
            {_relative(sink, entry.path) for entry in undone if entry.path not in kept_paths and entry.action == "add"}
        )
    )
    present = tuple(path for path in data if sink.exists(path))
    if not rebuild:
        return SinkCut(cut_log(log.names, last_kept, None), present)
    # The log does not say which batch wrote a file, and need not: one file may hold them all.
    first = min(_files_to_write(log, last_kept))

    def content_of(number: int, compact: bool) -> bytes:  # noqa: ARG001
        return log_with(kept if number == first else ())

    return SinkCut(cut_log(log.names, last_kept, content_of), present)


def _files_to_write(log: FileSinkLog, last_kept: int) -> list[int]:
    planned = cut_log(log.names, last_kept, lambda number, compact: b"")  # noqa: ARG005
    return [int(name.partition(".")[0]) for name in planned.written]


def _entries(log: FileSinkLog, numbers: tuple[int, ...]) -> list[SinkFile]:
    return [entry for number in numbers for entry in log.read(number).entries]


def _kept_by_time(history: History, log: FileSinkLog, next_batch: int) -> list[SinkFile]:
    """Entries of a later compacted file that are older than the first undone batch.

    A batch's files are written after its offsets and before its commit, so the gap between one batch's commit and the
    next one's offsets parts them. A file inside that gap would mean that the clocks disagree: then nothing is done.
    """
    later = next((number for number in log.names.compact_ids if number >= next_batch), None)
    committed = history.logs.commits.modified_ms(next_batch - 1)
    planned = history.logs.offsets.modified_ms(next_batch)
    if later is None or committed is None or planned is None:
        raise _cannot_tell("the log of the sink does not reach back that far")
    entries = log.read(later).entries
    times = {entry.path: int(json.loads(entry.line).get("modificationTime", -1)) for entry in entries}
    if any(committed < moment < planned or moment < 0 for moment in times.values()):
        raise _cannot_tell("a data file was written between two batches: the clocks of sink and checkpoint disagree")
    return [entry for entry in entries if times[entry.path] <= committed]


def _cannot_tell(reason: str) -> ChangeRefused:
    return ChangeRefused(
        "sink-log-gone",
        "cannot tell which of the sink's files the undone batches wrote",
        evidence={"why": reason},
        remedy="rewind to a later batch, or run the job into a new folder with headwater fork",
    )


def _relative(sink: Files, uri: str) -> str:
    parts = urlsplit(uri)
    path = unquote(parts.path)
    root = sink.location.partition("://")[2] if "://" in sink.location else sink.location
    whole = f"{parts.netloc}{path}" if parts.netloc else path
    base = root.rstrip("/")
    if not whole.startswith(f"{base}/"):
        raise ChangeRefused(
            "sink-elsewhere",
            "the sink's log names files in another folder",
            evidence={"sink": sink.location, "file": uri, "log": SINK_LOG},
            remedy="name the folder that the job writes to: --sink files:DIR",
        )
    return whole[len(base) + 1 :]
