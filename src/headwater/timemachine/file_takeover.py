"""Give a file sink the output of a fork: its log, its data files, and how both sinks become what they were.

The new log of the original's folder lists the files of the original up to the batch of the fork, and those of the fork
since. Batches of the fork have the numbers that follow, so Spark continues the log as if one query had written it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.checkpoint.file_logs import FileSinkLog, LogNames, SinkFile, log_with, parse_file_sink_log
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMPACT, JOB_FILE, SINK_LOG, join
from headwater.checkpoint.record import JobRecord, parse_job_record, sink_of
from headwater.core.errors import ChangeRefused
from headwater.core.text import count
from headwater.timemachine.change import Change, Move, Put, Step, quarantine_of, scratch_of
from headwater.timemachine.cuts import entries_before, relative_to_sink
from headwater.timemachine.fork import ORIGINAL_LOG
from headwater.timemachine.relocate import Place, Relocation, rewritten
from headwater.timemachine.sink_swap import SinkLog, parse_sink_log, steps_aside
from headwater.timemachine.undo import steps_of_undo


@dataclass(frozen=True)
class FileTakeover:
    """The steps in the folder of the original, ``into``, and the ``files`` that it gets from the fork's own folder."""

    own: FileTree = field(repr=False)
    into: FileTree = field(repr=False)
    files: tuple[str, ...]
    steps: tuple[Step, ...]
    leaving: int


def plan_file_takeover(fork: FileTree, original: FileTree, at: int | None, change_id: str) -> FileTakeover:
    """Plan what the folder of the original's sink becomes. Raise ``ChangeRefused`` if files that it needs are missing."""
    own, into = sink_of(fork), sink_of(original)
    assert own is not None and into is not None
    before = [] if at is None else _before(fork, original, into, at)
    log = FileSinkLog(own)
    moves = _moves(fork, own, into)
    added = [entry for number in _needed(log) for entry in log.read(number).entries if entry.action == "add"]
    files = tuple(dict.fromkeys(relative_to_sink(own, entry.path) for entry in added))
    wanted = {entry.path for entry in before}
    kept = [relative_to_sink(into, path) for path in sorted(wanted)]
    present = _paths(into)
    _refuse_missing(own, _paths(own), files)
    _refuse_missing(into, present, kept)
    _refuse_collision(into, present, files)
    aside = tuple(steps_aside(into, wanted, change_id))
    new_log = _new_log(log, before, FileSinkLog(into), at, moves)
    puts = tuple(Put("sink", f"{SINK_LOG}/{name}", data) for name, data in new_log.items())
    staged = tuple(Move("sink", f"{scratch_of(change_id)}/{path}", path) for path in files)
    data = [step for step in aside if not step.source.startswith(f"{SINK_LOG}/") and not _is_crc(step.source)]
    return FileTakeover(own, into, files, (*aside, *staged, *puts), len(data))


def share_files(own: FileTree, files: Sequence[str], into: FileTree, change_id: str) -> None:
    """Make files of the fork available in the other folder, where readers do not look, for the steps to move them."""
    folder = scratch_of(change_id)
    missing = [path for path in files if not into.exists(f"{folder}/{path}")]
    if into.is_local:
        scratch = into.subtree(folder)
        for path in missing:
            own.share(path, scratch)
    else:
        for path in missing:
            into.write(f"{folder}/{path}", own.read(path))


def _before(fork: FileTree, original: FileTree, into: FileTree, at: int) -> list[SinkFile]:
    """Return the entries of the original up to the fork: as recorded then, or else from the log as it is now."""
    if fork.exists(ORIGINAL_LOG):
        return list(parse_file_sink_log(fork.read(ORIGINAL_LOG), ORIGINAL_LOG).entries)
    log = FileSinkLog(into)
    return entries_before(History(original), log, at + 1) if log.names.ids else []


def _needed(log: FileSinkLog) -> tuple[int, ...]:
    return () if log.names.latest is None else log.names.needed_for(log.names.latest)


def _moves(fork: FileTree, old: FileTree, new: FileTree) -> Relocation:
    return Relocation(fork, ((Place.of(old.spark_uri()), new),))


def _new_log(
    log: FileSinkLog, before: Sequence[SinkFile], theirs: FileSinkLog, at: int | None, moves: Relocation
) -> dict[str, bytes]:
    """Return the new log files by name.

    Spark needs all of them from the last compacted one on. If the fork has compacted its log since it began, that file gets
    the entries of the original; otherwise they keep the files that they have, or get a compacted one.
    """
    needed, found = _needed(log), dict[str, bytes]()
    last = -1 if at is None else at
    if last >= 0 and (not needed or needed[0] <= last):
        if theirs.names.ids and not theirs.names.missing_for(last):
            found = {
                theirs.names.by_id[one]: log_with(theirs.read(one).entries) for one in theirs.names.needed_for(last)
            }
        else:
            found = {f"{last}{COMPACT}": log_with(before)}
        needed, before = tuple(number for number in needed if number > last), ()
    for number in needed:
        name = log.names.by_id[number]
        text = rewritten(f"{SINK_LOG}/{name}", log_with(log.read(number).entries), moves)
        entries = parse_file_sink_log(text, name).entries
        found[name] = log_with([*before, *entries]) if number == needed[0] else log_with(entries)
    return found


def _paths(files: FileTree) -> set[str]:
    return {join(folder, name) for folder, names in files.tree("").items() for name in names}


def _refuse_missing(sink: FileTree, present: Collection[str], paths: Sequence[str]) -> None:
    lost = [path for path in paths if path not in present]
    if lost:
        raise ChangeRefused(
            "sink-not-taken-over",
            f"{count(len(lost), 'file')} that the log of the sink lists cannot be found",
            evidence={"folder": sink.location, "first missing": lost[0]},
        )


def _refuse_collision(sink: FileTree, present: Collection[str], files: Sequence[str]) -> None:
    both = [path for path in files if path in present]
    if both:
        raise ChangeRefused(
            "sink-not-taken-over",
            f"{count(len(both), 'file')} of the same name are in both folders",
            evidence={"folder": sink.location, "first": both[0]},
        )


def _is_crc(path: str) -> bool:
    return path.endswith(".crc")


def former_record(fork: FileTree, done: Change) -> JobRecord:
    """Return the record of the fork's job from before a takeover."""
    return parse_job_record(fork.read(f"{quarantine_of(done.change_id)}/{JOB_FILE}"))


def steps_back(fork: FileTree, sink: FileTree | None, done: Change, change_id: str) -> Iterator[Step]:
    """Yield the steps after which the original's sink has exactly what it had, and the fork its former record."""
    if sink is None:
        yield from steps_of_undo({"checkpoint": fork}, done, (), change_id)
        return
    wanted = _listed(_former_log(sink, done))
    cut = tuple(steps_aside(sink, wanted, change_id))
    yield from steps_of_undo({"checkpoint": fork, "sink": sink}, done, cut, change_id)


def _former_log(sink: FileTree, done: Change) -> SinkLog:
    folder = f"{quarantine_of(done.change_id)}/{SINK_LOG}"
    return parse_sink_log({entry.name: sink.read(f"{folder}/{entry.name}") for entry in sink.entries(folder)})


def _listed(log: Mapping[str, Sequence[SinkFile]]) -> set[str]:
    return {entry.path for entries in log.values() for entry in entries}


def bring_back_files(fork: FileTree, sink: FileTree, done: Change) -> None:
    """Give the fork's own folder what the fork has written to another one since. Repeating it changes nothing."""
    own = sink_of(fork, former_record(fork, done).sink)
    assert own is not None
    theirs = _listed(_former_log(sink, done))
    log, moves = FileSinkLog(sink), _moves(fork, sink, own)
    latest = FileSinkLog(own).names.latest
    if log.names.latest is None or (latest is not None and latest >= log.names.latest):
        return
    wanted: dict[str, bytes] = {}
    for number in _needed(log):
        entries = [entry for entry in log.read(number).entries if entry.path not in theirs]
        for entry in entries:
            path = relative_to_sink(sink, entry.path)
            if not own.exists(path):
                sink.share(path, own)
        name = log.names.by_id[number]
        wanted[name] = rewritten(f"{SINK_LOG}/{name}", log_with(entries), moves)
    present = {f"{SINK_LOG}/{entry.name}" for entry in own.entries(SINK_LOG)}
    # With log files of before and after a gap, Spark would expect those in between. The newest one comes last: it is
    # what tells that this was done.
    for path in sorted(present):
        own.move(path, f"{quarantine_of(done.change_id)}/{path}")
    for name, data in sorted(wanted.items(), key=lambda item: LogNames.of([item[0]]).ids):
        own.write(f"{SINK_LOG}/{name}", data)
