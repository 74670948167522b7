"""Cutting back the compacted logs of file sources and file sinks. Pure: names and entries in, files out.

Spark finds its way through such a log by the ids of compacted files: an id whose successor is a multiple of the
interval. When the compacted file that covers what is kept has been cleaned away, it is made again from a later one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headwater.checkpoint.file_logs import FileSinkLog, LogNames, SinkFile, sink_log_with, source_log_with
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import (
    COMMITS,
    COMPACT,
    OFFSETS,
    SINK_LOG,
    SOURCES,
    STATE,
    batch_id,
    is_temporary,
    join,
    state_file,
)
from headwater.checkpoint.log_entries import OffsetEntry
from headwater.checkpoint.logtext import broken
from headwater.checkpoint.source_offsets import kind_of, log_offset, offset_value
from headwater.core.errors import ChangeRefused

DEFAULT_INTERVAL = 10


@dataclass(frozen=True)
class LogCut:
    """Names to set aside, and files to write so that the rest is whole."""

    aside: tuple[str, ...]
    written: Mapping[str, bytes]


def cut_log(names: LogNames, last_kept: int, content_of: Callable[[int, bool], bytes] | None) -> LogCut:
    """Keep everything up to an id (-1: nothing).

    ``content_of(id, compact)`` makes a file that is needed and not there; None when the log still has all it needs,
    or when nobody can tell what was in it: ask ``needs_rebuilding`` first.
    """
    aside = [name for number, name in sorted(names.by_id.items()) if number > last_kept]
    aside += [name for name in names.duplicates if name not in aside and _id(name) > last_kept]
    if content_of is None or not needs_rebuilding(names, last_kept):
        return LogCut(tuple(aside), {})
    compacted = _compactions_to_write(names.compact_ids, last_kept)
    first_plain = compacted[-1] + 1 if compacted else 0
    # Spark takes the distance between the two newest compacted files for the interval: others must not be there.
    aside += [names.by_id[number] for number in names.ids if number < first_plain and number not in compacted]
    aside += [names.by_id[number] for number in compacted if number in names.by_id]
    written = {f"{number}{COMPACT}": content_of(number, True) for number in compacted}
    for number in range(first_plain, last_kept + 1):
        if number not in names.by_id:
            written[str(number)] = content_of(number, False)
    return LogCut(tuple(aside), written)


def empty_log(like: LogNames, last: int, content: bytes) -> dict[str, bytes]:
    """A log that holds nothing up to an id, with the names that another one has: Spark reads them with the same setting.

    Where the other one does not reach back that far, or there is none, the names are such that Spark finds its way.
    """
    if last < 0:
        return {}
    if like.ids and not like.missing_for(last):
        return {like.by_id[number]: content for number in like.ids if number <= last}
    compacted = _compactions_to_write(like.compact_ids, last)
    first_plain = compacted[-1] + 1 if compacted else 0
    written = [f"{number}{COMPACT}" for number in compacted] + [str(number) for number in range(first_plain, last + 1)]
    return dict.fromkeys(written, content)


def needs_rebuilding(names: LogNames, last_kept: int) -> bool:
    """Whether files that hold what is kept were cleaned away after a later compaction."""
    return last_kept >= 0 and bool(names.missing_for(last_kept))


def interval_of(compact_ids: Sequence[int], default: int = DEFAULT_INTERVAL) -> int:
    """The compaction interval as Spark derives it from the compacted files that it finds, and its setting."""
    if not compact_ids:
        return default
    if len(compact_ids) > 1:
        return compact_ids[-1] - compact_ids[-2]
    size = compact_ids[0] + 1
    if size > default and default < size // 2:
        return next((part for part in range(default, size // 2 + 1) if size % part == 0), size)
    return size


def ids_that_spark_reads(compact_ids: Sequence[int], latest: int, default: int) -> range:
    """The ids that Spark opens for everything up to the latest one; the first as a compacted file, if it is one."""
    interval = interval_of(compact_ids, default)
    return range(max(0, (latest + 1) // interval * interval - 1), latest + 1)


def _compactions_to_write(compact_ids: Sequence[int], last_kept: int) -> tuple[int, ...]:
    """The ids of the compacted files of a rebuilt log: the two that Spark would have, so that it keeps its interval.

    Where the interval cannot be known, one compacted file at the very last id is found with any setting.
    """
    if len(compact_ids) == 1 or (not compact_ids and DEFAULT_INTERVAL <= last_kept + 1 < 2 * DEFAULT_INTERVAL):
        return (last_kept,)
    interval = interval_of(compact_ids)
    newest = (last_kept + 1) // interval * interval - 1
    if newest < 0:
        return () if interval == DEFAULT_INTERVAL else (last_kept,)
    return (newest - interval, newest) if newest >= interval else (newest,)


def _id(name: str) -> int:
    return int(name.removesuffix(COMPACT))


def with_crc(names: Iterable[str], present: Iterable[str]) -> list[str]:
    """Each name and its Hadoop checksum file, if there is one: a stale one makes Spark fail with a misleading message."""
    held = set(present)
    found: list[str] = []
    for name in names:
        found.append(name)
        if f".{name}.crc" in held:
            found.append(f".{name}.crc")
    return found


@dataclass(frozen=True)
class SinkCut:
    """The cut of ``_spark_metadata``, and the data files that only the undone batches wrote."""

    log: LogCut
    data: tuple[str, ...]


def has_sink_log(sink: FileTree) -> bool:
    """Whether Spark's file sink keeps a log there. Files that a job writes batch by batch have none."""
    return bool(FileSinkLog(sink).names.ids)


def cut_sink(history: History, sink: FileTree, next_batch: int) -> SinkCut:
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


def entry_without_files(sink: FileTree, number: int) -> dict[str, bytes]:
    """The log file of a batch that wrote nothing, under the name at which Spark looks for it when it compacts the log.

    Before the first compaction nobody knows the interval: one compacted file alone is found with any.
    """
    log = FileSinkLog(sink)
    latest, compact_ids = log.names.latest, log.names.compact_ids
    if latest is None or latest >= number:
        return {}
    if compact_ids and (number + 1) % interval_of(compact_ids):
        return {str(number): sink_log_with(())}
    return {f"{number}{COMPACT}": sink_log_with(_entries(log, log.names.needed_for(latest)))}


def _rebuilt(log: FileSinkLog, last_kept: int, kept: list[SinkFile]) -> LogCut:
    """The log does not say which batch wrote a file, and need not: one file may hold what the others lack."""
    draft = cut_log(log.names, last_kept, lambda number, compact: b"")  # noqa: ARG005
    staying = [number for number in log.names.ids if log.names.by_id[number] not in draft.aside]
    told = {entry.path for entry in _entries(log, tuple(staying))}
    rest = [entry for entry in kept if entry.path not in told]
    holders = {name for name in draft.written if name.endswith(COMPACT)} or {min(draft.written, key=int)}
    return LogCut(draft.aside, {name: sink_log_with(rest if name in holders else ()) for name in draft.written})


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


def _relative(sink: FileTree, uri: str) -> str:
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


def cut_batch_logs(files: FileTree, next_batch: int, *, replan: bool) -> list[str]:
    """Commits from the next batch on, and offsets after it; its own offsets stay unless it is planned anew.

    Halves of files that a killed query left go too: Spark starts a stream over only where not even they are in the way.
    """
    first_offset = next_batch if replan else next_batch + 1
    return [
        *(f"{OFFSETS}/{name}" for name in _numbered(files, OFFSETS, first_offset)),
        *(f"{COMMITS}/{name}" for name in _numbered(files, COMMITS, next_batch)),
    ]


def _numbered(files: FileTree, folder: str, first: int) -> Iterator[str]:
    for entry in files.entries(folder):
        number = batch_id(_bare(entry.name))
        if is_temporary(entry.name) or (number is not None and number >= first):
            yield entry.name


def cut_state(history: History, next_batch: int) -> list[str]:
    """Every file of a state version above the one that the next batch starts from.

    Spark loads the highest snapshot that it finds: one left over from the undone batches would win over what the
    batches write when they run again.
    """
    names = history.logs.state.names
    if next_batch == 0:
        return [join(folder, name) for folder, held in sorted(names.items()) for name in sorted(held)]
    return [
        join(folder, name)
        for folder, held in sorted(names.items())
        for name in sorted(held)
        if _is_newer_state(folder, name, next_batch)
    ]


def _is_newer_state(folder: str, name: str, next_batch: int) -> bool:
    bare = _bare(name)
    parts = folder.split("/")
    if len(parts) >= 4 and parts[2] == "_metadata" and parts[3] == "v2":
        number = batch_id(bare)
        return number is not None and number >= next_batch
    if len(parts) >= 4 and parts[2] == "_stateSchema":
        number = batch_id(bare.partition("_")[0])
        return number is not None and number >= next_batch
    held = state_file(bare) if parts[0] == STATE else None
    return held is not None and held.version > next_batch


def _bare(name: str) -> str:
    """The name of the file that a checksum file is about (or the checksum of a checksum), or the name itself."""
    while name.endswith(".crc") and len(name) > len(".crc"):
        name = name[1:-4] if name.startswith(".") else name[:-4]
    return name


def cut_sources(history: History, next_batch: int, *, replan: bool) -> dict[str, LogCut]:
    """By source name, the cut of every file source's log. Other sources keep only their start there, which stays."""
    last_kept_offsets = next_batch - 1 if replan else next_batch
    entry = history.logs.offsets.read(last_kept_offsets) if last_kept_offsets >= 0 else None
    cuts: dict[str, LogCut] = {}
    for folder in history.files.entries(SOURCES):
        if history.source_log(folder.name).names.ids and _is_file_source(history, folder.name):
            text = _text_of(entry, folder.name)
            kept = -1 if text is None else log_offset(offset_value(text))
            if kept is None:
                path = history.logs.offsets.path(last_kept_offsets)
                raise broken("bad-offset", path, f"has no position for file source {folder.name}: {text}")
            cuts[folder.name] = _cut_source(history, folder.name, kept)
    return cuts


def _is_file_source(history: History, name: str) -> bool:
    """By what the newest batches say of it; its own log speaks where they do not."""
    for number in reversed(history.logs.offsets.ids):
        text = _text_of(history.logs.offsets.get(number), name)
        if text is not None:
            return kind_of(offset_value(text), history.logs.hint(name)) in ("files", "table")
    return history.logs.hint(name).kind in ("files", "table")


def _text_of(entry: OffsetEntry | None, name: str) -> str | None:
    return next((source.text for source in entry.sources if source.name == name), None) if entry else None


def _cut_source(history: History, name: str, last_kept: int) -> LogCut:
    log = history.source_log(name)
    if not needs_rebuilding(log.names, last_kept):
        return cut_log(log.names, last_kept, None)
    entries = log.everything_upto(last_kept)
    if entries is None:
        raise ChangeRefused(
            "source-log-gone",
            f"the log of file source {name} no longer tells which files were read up to offset {last_kept}",
            evidence={"folder": f"{SOURCES}/{name}", "missing": ", ".join(map(str, log.names.missing_for(last_kept)))},
            remedy="rewind to a later batch",
        )

    def content_of(number: int, compact: bool) -> bytes:
        wanted = (item for item in entries if (item.batch_id <= number if compact else item.batch_id == number))
        return source_log_with(wanted)

    return cut_log(log.names, last_kept, content_of)
