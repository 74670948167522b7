"""Cutting back a file sink: Spark silently skips every batch that its log has seen, so the log has to go back too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headwater.checkpoint.file_sink_log import FileSinkLog, SinkFile, log_with
from headwater.checkpoint.files import Files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMPACT, SINK_LOG
from headwater.core.errors import ChangeRefused
from headwater.timemachine.log_cut import LogCut, cut_log, interval_of, needs_rebuilding


@dataclass(frozen=True)
class SinkCut:
    """The cut of ``_spark_metadata``, and the data files that only the undone batches wrote."""

    log: LogCut
    data: tuple[str, ...]


def has_sink_log(sink: Files) -> bool:
    """Whether Spark's file sink keeps a log there. Files that a job writes batch by batch have none."""
    return bool(FileSinkLog(sink).names.ids)


def cut_sink(history: History, sink: Files, next_batch: int) -> SinkCut:
    """Drop the entries of the undone batches and set their data files aside."""
    log = FileSinkLog(sink)
    last_kept = next_batch - 1
    rebuild = needs_rebuilding(log.names, last_kept)
    kept = _kept_by_time(history, log, next_batch) if rebuild else _entries(log, log.names.needed_for(last_kept))
    undone = _entries(log, tuple(number for number in log.names.ids if number >= next_batch))
    kept_paths = {entry.path for entry in kept}
    paths = {_relative(sink, entry.path) for entry in undone if entry.path not in kept_paths and entry.action == "add"}
    data = tuple(sorted(path for path in paths if sink.exists(path)))
    if not rebuild:
        return SinkCut(cut_log(log.names, last_kept, None), data)

    return SinkCut(_rebuilt(log, last_kept, kept), data)


def entry_without_files(sink: Files, number: int) -> dict[str, bytes]:
    """The log file of a batch that wrote nothing, under the name at which Spark looks for it when it compacts the log.

    Before the first compaction nobody knows the interval: one compacted file alone is found with any.
    """
    log = FileSinkLog(sink)
    latest, compact_ids = log.names.latest, log.names.compact_ids
    if latest is None or latest >= number:
        return {}
    if compact_ids and (number + 1) % interval_of(compact_ids):
        return {str(number): log_with(())}
    return {f"{number}{COMPACT}": log_with(_entries(log, log.names.needed_for(latest)))}


def _rebuilt(log: FileSinkLog, last_kept: int, kept: list[SinkFile]) -> LogCut:
    """The log does not say which batch wrote a file, and need not: one file may hold what the others lack."""
    draft = cut_log(log.names, last_kept, lambda number, compact: b"")  # noqa: ARG005
    staying = [number for number in log.names.ids if log.names.by_id[number] not in draft.aside]
    told = {entry.path for entry in _entries(log, tuple(staying))}
    rest = [entry for entry in kept if entry.path not in told]
    holders = {name for name in draft.written if name.endswith(COMPACT)} or {min(draft.written, key=int)}
    return LogCut(draft.aside, {name: log_with(rest if name in holders else ()) for name in draft.written})


def _entries(log: FileSinkLog, numbers: tuple[int, ...]) -> list[SinkFile]:
    return [entry for number in numbers for entry in log.read(number).entries]


def _kept_by_time(history: History, log: FileSinkLog, next_batch: int) -> list[SinkFile]:
    """Entries of a later compacted file that are older than the first undone batch.

    A batch's files are written after its plan and before its commit. Two witnesses have to agree on each file: the
    clock of the file system (the last kept commit) and the clock of the query (the time in the first undone plan).
    And as a compacted file lists batches in order, what is kept has to come first. Where any of them disagrees,
    nothing is done: a wrong guess would lose rows, or write them twice.
    """
    later = next((number for number in log.names.compact_ids if number >= next_batch), None)
    committed = history.logs.commits.modified_ms(next_batch - 1)
    plan = history.logs.offsets.get(next_batch)
    if later is None or committed is None or plan is None or not plan.timestamp_ms:
        raise _cannot_tell(history, log, next_batch, "the logs do not reach back that far")
    entries = log.read(later).entries
    moments = [_moment(entry) for entry in entries]
    step = 1000 if all(moment % 1000 == 0 for moment in moments) else 1  # some stores keep whole seconds only
    older = [0 < moment <= committed and moment // step < plan.timestamp_ms // step for moment in moments]
    newer = [moment > committed and moment >= plan.timestamp_ms for moment in moments]
    kept = sum(older)
    if (
        any(a == b for a, b in zip(older, newer, strict=True))
        or not all(older[:kept])
        or not _clocks_agree(history, log, step)
    ):
        reason = "the clocks of sink, checkpoint and query disagree, or files were copied without their times"
        raise _cannot_tell(history, log, next_batch, reason)
    return list(entries[:kept])


def _clocks_agree(history: History, log: FileSinkLog, step: int) -> bool:
    """Whether the files of batches that can still be told apart were written between their plan and their commit."""
    seen = False
    for number in log.names.ids:
        plan, committed = history.logs.offsets.get(number), history.logs.commits.modified_ms(number)
        if log.names.is_compact(number) or plan is None or plan.timestamp_ms is None or committed is None:
            continue
        for entry in log.read(number).entries:
            seen = True
            if not plan.timestamp_ms // step * step <= _moment(entry) <= committed:
                return False
    return seen or (history.files.is_local and log.files.is_local)


def _moment(entry: SinkFile) -> int:
    return int(json.loads(entry.line).get("modificationTime", -1))


def _cannot_tell(history: History, log: FileSinkLog, next_batch: int, reason: str) -> ChangeRefused:
    place = history.files.location
    reachable = [
        number
        for number in history.batch_ids
        if not needs_rebuilding(log.names, number) and history.batch(number).can_rewind_to
    ]
    nearest = min(reachable, key=lambda number: (number < next_batch - 1, abs(number - next_batch)), default=None)
    another = f"headwater rewind {place} --to {nearest}, or " if nearest is not None else ""
    return ChangeRefused(
        "sink-log-gone",
        f"cannot tell which of the sink's files batch {next_batch} and those after it wrote",
        evidence={"why": reason, "sink": log.files.location},
        remedy=f"{another}run the job into a new folder: headwater fork {place} INTO --at {next_batch - 1}",
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
