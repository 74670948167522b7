"""The files that a rewind sets aside in each part of a checkpoint and in its file sink, and those that it writes.

Batch logs and state are cut by the number in a file's name. The logs of file sources are cut at the offset that the
last kept batch recorded. The log of a file sink is cut at the batch, together with the data files that only undone
batches wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headwater.checkpoint.file_logs import FileSinkLog, SinkFile, log_with
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import (
    COMMITS,
    COMPACT,
    OFFSETS,
    PLANS_FILE,
    SINK_LOG,
    SOURCES,
    batch_id,
    is_temporary,
    join,
    parent_and_name,
)
from headwater.checkpoint.log_entries import text_of_source
from headwater.checkpoint.logtext import read_bytes, unreadable_file
from headwater.checkpoint.migrated import former_path
from headwater.checkpoint.plan_record import plans_file, plans_until, read_plans
from headwater.checkpoint.source_offsets import kind_of, log_offset, offset_value
from headwater.core.errors import ChangeRefused
from headwater.timemachine.change import Preview, Put, Root, Step, set_aside
from headwater.timemachine.compacted_log import LogCut, cut_log, interval_of, needs_rebuilding, with_crc
from headwater.timemachine.earlier_layout import steps_to_former_layout, with_cut
from headwater.timemachine.newer_state import bare_name, is_newer_state


def cut_steps(
    history: History, sink: FileTree | None, next_batch: int, change_id: str, *, replan: bool
) -> Iterator[Step]:
    """Yield the steps after which a batch runs next: sink first, then batch logs and state, then source logs.

    If a migration from that batch on has changed the sources or operators, the former ones return before that.
    """
    back = steps_to_former_layout(history, next_batch, change_id)
    before = History(Preview(history.files, back)) if back else history
    yield from with_cut(back, _cut_steps(before, sink, next_batch, change_id, replan=replan))


def _cut_steps(
    history: History, sink: FileTree | None, next_batch: int, change_id: str, *, replan: bool
) -> Iterator[Step]:
    files = history.files
    if sink is not None:
        cut = cut_sink(history, sink, next_batch)
        yield from log_steps(sink, "sink", SINK_LOG, cut.log, change_id)
        for path in cut.data:
            folder, name = parent_and_name(path)
            present = [entry.name for entry in sink.entries(folder)]
            yield from (set_aside(change_id, "sink", join(folder, leaving)) for leaving in with_crc([name], present))
    for path in (*cut_batch_logs(files, next_batch, replan=replan), *cut_state(history, next_batch)):
        yield set_aside(change_id, "checkpoint", path)
    for path, data in metadata_before(history, next_batch).items():
        yield Put("checkpoint", path, data)
    for name, log_cut in cut_sources(history, next_batch, replan=replan).items():
        yield from log_steps(files, "checkpoint", f"{SOURCES}/{name}", log_cut, change_id)


def cut_plans(history: History, next_batch: int, change_id: str, *, keep_next: bool = False) -> Iterator[Step]:
    """Yield the steps that cut the record of what the state means. An undo brings back the whole record."""
    if history.files.exists(PLANS_FILE):
        yield set_aside(change_id, "checkpoint", PLANS_FILE)
        yield Put("checkpoint", PLANS_FILE, plans_before(history, next_batch, keep_next=keep_next))


def plans_before(history: History, next_batch: int, *, keep_next: bool = False) -> bytes:
    """Return the record of what the state means if a batch is the next one.

    What the user accepted for that batch remains, unless it was for the state that a migration left in the batch. With
    ``keep_next``, it always does: the undo of a migration brings back the former record.
    """
    last = next_batch - (not keep_next and was_added(history, next_batch))
    return plans_file(plans_until(read_plans(history.files), last))


def must_replan(history: History, next_batch: int) -> bool:
    """Return whether the next batch cannot run with its recorded offsets, because there are none or it was added."""
    return history.logs.offsets.get(next_batch) is None or was_added(history, next_batch)


def was_added(history: History, number: int) -> bool:
    """Return whether an edit, a migration or a repartition added a batch.

    Such a batch has no input, and the watermark and the time of the batch before it, for the state that it leaves. Spark
    would run it on the state from before, with a watermark that is too low.
    """
    if number in history.logs.former.layouts:
        return True
    planned, before = history.logs.offsets.get(number), history.logs.offsets.get(number - 1)
    if planned is None or before is None:
        return False
    return (before.timestamp_ms, before.sources) == (planned.timestamp_ms, planned.sources)


def log_steps(files: FileTree, root: Root, folder: str, cut: LogCut, change_id: str) -> Iterator[Step]:
    """Yield the steps that cut a log in a folder."""
    present = {entry.name for entry in files.entries(folder)}
    # A checksum that is left behind would not match the file that is written.
    stale = [crc for name in cut.written if (crc := f".{name}.crc") in present and name not in cut.aside]
    for name in (*with_crc(cut.aside, present), *stale):
        yield set_aside(change_id, root, f"{folder}/{name}")
    for name, data in cut.written.items():
        yield Put(root, f"{folder}/{name}", data)


def cut_batch_logs(files: FileTree, next_batch: int, *, replan: bool) -> list[str]:
    """Return the commits from the next batch on, and the offsets after it; with ``replan``, its own offsets too.

    Temporary files of a killed query are included: Spark starts from scratch only if there are none.
    """
    first_offset = next_batch if replan else next_batch + 1
    return [
        *(f"{OFFSETS}/{name}" for name in _numbered(files, OFFSETS, first_offset)),
        *(f"{COMMITS}/{name}" for name in _numbered(files, COMMITS, next_batch)),
    ]


def _numbered(files: FileTree, folder: str, first: int) -> Iterator[str]:
    for entry in files.entries(folder):
        number = batch_id(bare_name(entry.name))
        if is_temporary(entry.name) or (number is not None and number >= first):
            yield entry.name


def cut_state(history: History, next_batch: int) -> list[str]:
    """Return every file of a state version above the one that the next batch starts from.

    Spark loads the newest snapshot that it finds, so one of an undone batch would win over what the re-run writes. The
    metadata that undone migrations wrote is included, with what they replaced: see ``metadata_before``.
    """
    newer = [
        join(folder, name)
        for folder, names in sorted(history.logs.present_state.names.items())
        for name in sorted(names)
        if next_batch == 0 or is_newer_state(folder, name, next_batch)
    ]
    return list(dict.fromkeys([*newer, *_migrated(history, next_batch)]))


def _migrated(history: History, next_batch: int) -> Iterator[str]:
    """Yield the metadata that migrations have replaced from a batch on, and the former contents of it."""
    for number, path in history.logs.former.since(next_batch):
        folder, name = parent_and_name(path)
        present = history.logs.present_state.names.get(folder, [])
        yield from (join(folder, one) for one in with_crc([name], present) if one in present)
        yield former_path(number, path)


def metadata_before(history: History, next_batch: int) -> dict[str, bytes]:
    """Return the metadata of the state that a batch starts from, as far as migrations have replaced it since."""
    found: dict[str, bytes] = {}
    for number, path in history.logs.former.since(next_batch) if next_batch > 0 else ():
        if path not in found:
            found[path] = read_bytes(history.files, former_path(number, path))
    return {path: data for path, data in found.items() if data}


def cut_sources(history: History, next_batch: int, *, replan: bool) -> dict[str, LogCut]:
    """Return the cut of every file source's log, by folder. Other sources keep only their initial offset there."""
    last_kept_offsets = next_batch - 1 if replan else next_batch
    entry = history.logs.offsets.read(last_kept_offsets) if last_kept_offsets >= 0 else None
    cuts: dict[str, LogCut] = {}
    for folder in history.files.entries(SOURCES):
        source = history.logs.source_in(folder.name)
        if history.source_log(source).names.ids and _is_file_source(history, source):
            text = text_of_source(entry, source)
            kept = -1 if text is None else log_offset(offset_value(text))
            if kept is None:
                path = history.logs.offsets.path(last_kept_offsets)
                raise unreadable_file("bad-offset", path, f"has no valid offset for file source {source}: {text}")
            cuts[folder.name] = _cut_source(history, source, kept)
    return cuts


def _is_file_source(history: History, name: str) -> bool:
    """Return whether a source is a file source, by its newest offsets or, without any, by its log."""
    for number in reversed(history.logs.offsets.ids):
        text = text_of_source(history.logs.offsets.get(number), name)
        if text is not None:
            return kind_of(offset_value(text), history.logs.hint(name)) in ("files", "table")
    return history.logs.hint(name).kind in ("files", "table")


def _cut_source(history: History, name: str, last_kept: int) -> LogCut:
    log = history.source_log(name)
    if not needs_rebuilding(log.names, last_kept):
        return cut_log(log.names, last_kept, None)
    entries = log.everything_upto(last_kept)
    if entries is None:
        raise ChangeRefused(
            "source-log-gone",
            f"the log of file source {name} no longer lists the files read up to offset {last_kept}",
            evidence={"folder": log.folder, "missing": ", ".join(map(str, log.names.missing_for(last_kept)))},
            remedy="rewind to a later batch",
        )

    def content_of(number: int, compact: bool) -> bytes:
        wanted = (item for item in entries if (item.batch_id <= number if compact else item.batch_id == number))
        return log_with(wanted)

    return cut_log(log.names, last_kept, content_of)


@dataclass(frozen=True)
class SinkCut:
    """The cut of ``_spark_metadata``, and the data files that only undone batches wrote."""

    log: LogCut
    data: tuple[str, ...]


def has_sink_log(sink: FileTree) -> bool:
    """Return whether a folder has the log of Spark's file sink. Files written by ``foreachBatch`` have none."""
    return bool(FileSinkLog(sink).names.ids)


def cut_sink(history: History, sink: FileTree, next_batch: int) -> SinkCut:
    """Return the log entries and data files of the undone batches."""
    log = FileSinkLog(sink)
    last_kept = next_batch - 1
    rebuild = needs_rebuilding(log.names, last_kept)
    kept = entries_before(history, log, next_batch)
    undone = _entries(log, tuple(number for number in log.names.ids if number >= next_batch))
    kept_paths = {entry.path for entry in kept}
    paths = {
        relative_to_sink(sink, entry.path) for entry in undone if entry.path not in kept_paths and entry.action == "add"
    }
    data = tuple(sorted(path for path in paths if sink.exists(path)))
    if not rebuild:
        return SinkCut(cut_log(log.names, last_kept, None), data)
    return SinkCut(_rebuilt(log, last_kept, kept), data)


def entries_before(history: History, log: FileSinkLog, next_batch: int) -> list[SinkFile]:
    """Return the entries of all batches before one. Raise ``ChangeRefused`` if the log no longer tells them apart."""
    if log.names.missing_for(next_batch - 1):
        return _kept_by_time(history, log, next_batch)
    return _entries(log, log.names.needed_for(next_batch - 1))


def entry_without_files(sink: FileTree, number: int) -> dict[str, bytes]:
    """Return the log file of a batch without output, under the name that Spark expects when it compacts the log.

    Before the first compaction the interval is unknown; a single compacted file works with any interval.
    """
    log = FileSinkLog(sink)
    latest, compact_ids = log.names.latest, log.names.compact_ids
    if latest is None or latest >= number:
        return {}
    if compact_ids and (number + 1) % interval_of(compact_ids):
        return {str(number): log_with(())}
    return {f"{number}{COMPACT}": log_with(_entries(log, log.names.needed_for(latest)))}


def _rebuilt(log: FileSinkLog, last_kept: int, kept: list[SinkFile]) -> LogCut:
    """Return a cut in which one log file gets all missing entries. Readers do not care which batch an entry is under."""
    draft = cut_log(log.names, last_kept, lambda number, compact: b"")  # noqa: ARG005
    staying = [number for number in log.names.ids if log.names.by_id[number] not in draft.aside]
    listed = {entry.path for entry in _entries(log, tuple(staying))}
    rest = [entry for entry in kept if entry.path not in listed]
    holders = {name for name in draft.written if name.endswith(COMPACT)} or {min(draft.written, key=int)}
    return LogCut(draft.aside, {name: log_with(rest if name in holders else ()) for name in draft.written})


def _entries(log: FileSinkLog, numbers: tuple[int, ...]) -> list[SinkFile]:
    return [entry for number in numbers for entry in log.read(number).entries]


def _kept_by_time(history: History, log: FileSinkLog, next_batch: int) -> list[SinkFile]:
    """Return the entries of a later compacted file that are older than the first undone batch.

    A batch's files are written after its offsets and before its commit. Two clocks have to agree on each file: that of
    the file system (the last kept commit) and that of the query (the timestamp of the first undone batch). A compacted
    file lists batches in order, so the kept entries also have to come first. If anything disagrees, the cut is refused:
    a wrong guess would lose rows or write them twice.
    """
    later = next((number for number in log.names.compact_ids if number >= next_batch), None)
    committed = history.logs.commits.modified_ms(next_batch - 1)
    plan = history.logs.offsets.get(next_batch)
    if later is None or committed is None or plan is None or not plan.timestamp_ms:
        raise _unknown_files(history, log, next_batch, "the logs do not reach back that far")
    entries = log.read(later).entries
    times = [_modified_ms(entry) for entry in entries]
    step = 1000 if all(time % 1000 == 0 for time in times) else 1  # some file systems keep only seconds
    older = [0 < time <= committed and time // step < plan.timestamp_ms // step for time in times]
    newer = [time > committed and time >= plan.timestamp_ms for time in times]
    kept = sum(older)
    if (
        any(a == b for a, b in zip(older, newer, strict=True))
        or not all(older[:kept])
        or not _clocks_agree(history, log, step)
    ):
        reason = "the clocks of sink, checkpoint and query disagree, or files were copied without their timestamps"
        raise _unknown_files(history, log, next_batch, reason)
    return list(entries[:kept])


def _clocks_agree(history: History, log: FileSinkLog, step: int) -> bool:
    """Return whether the files of batches with log entries of their own were written between offsets and commit."""
    seen = False
    for number in log.names.ids:
        plan, committed = history.logs.offsets.get(number), history.logs.commits.modified_ms(number)
        if log.names.is_compact(number) or plan is None or plan.timestamp_ms is None or committed is None:
            continue
        for entry in log.read(number).entries:
            seen = True
            if not plan.timestamp_ms // step * step <= _modified_ms(entry) <= committed:
                return False
    return seen or (history.files.is_local and log.files.is_local)


def _modified_ms(entry: SinkFile) -> int:
    return int(json.loads(entry.line).get("modificationTime", -1))


def _unknown_files(history: History, log: FileSinkLog, next_batch: int, reason: str) -> ChangeRefused:
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
        f"cannot determine which files of the sink were written by batch {next_batch} and later batches",
        evidence={"why": reason, "sink": log.files.location},
        remedy=f"{another}continue with a new sink: headwater fork {place} INTO --at {next_batch - 1}",
    )


def relative_to_sink(sink: FileTree, uri: str) -> str:
    """Return the path of a data file relative to the sink. Raise ``ChangeRefused`` if it is in another folder."""
    root = sink.location.partition("://")[2] if "://" in sink.location else sink.location
    base = f"{root.rstrip('/')}/"
    path = _without_scheme(uri)
    if not path.startswith(base):
        raise ChangeRefused(
            "sink-elsewhere",
            "the log of the sink refers to files in another folder",
            evidence={"sink": sink.location, "file": uri, "log": SINK_LOG},
            remedy="give the folder that the job writes to: --sink files:DIR",
        )
    return path.removeprefix(base)


def _without_scheme(uri: str) -> str:
    try:
        parts = urlsplit(uri)
    except ValueError:  # not a valid URI
        return uri
    return parts.netloc + unquote(parts.path)
