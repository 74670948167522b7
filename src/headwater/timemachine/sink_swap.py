"""Replace the log of a file sink by an earlier or a later one, together with the data files that each of them lists."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from headwater.checkpoint.file_logs import FileSinkLog, SinkFile, log_with, parse_file_sink_log
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER, SINK_LOG, hadoop_crc_of, join, log_id, parent_and_name
from headwater.core.errors import ChangeRefused
from headwater.core.text import count
from headwater.timemachine.change import Link, Move, Put, Step, set_aside
from headwater.timemachine.cuts import relative_to_sink

QUARANTINE = f"{HEADWATER_FOLDER}/quarantine"
SinkLog = Mapping[str, tuple[SinkFile, ...]]
"""The entries of a sink's log by file name."""


@dataclass(frozen=True)
class SinkSwap:
    """Steps to do before and after those on the checkpoint's own files, and warnings."""

    leaving: tuple[Step, ...] = ()
    coming: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_sink_log(contents: Mapping[str, bytes]) -> SinkLog:
    """Return the entries of log files, given their contents by name; checksum files are ignored."""
    numbered = sorted((number, name) for name in contents if (number := log_id(name)) is not None)
    return {name: parse_file_sink_log(contents[name], f"{SINK_LOG}/{name}").entries for _, name in numbered}


def swap_sink(sink: FileTree, log: SinkLog, change_id: str) -> SinkSwap:
    """Return the steps after which a sink has exactly this log, and every data file that it lists.

    A file that an earlier change has set aside is linked from there, so that the earlier change can still be undone. Files
    that cannot be found are left out of the log: a reader would fail on them.
    """
    names = {folder: frozenset(found) for folder, found in sink.tree("").items()}
    wanted = {entry.path for entries in log.values() for entry in entries if entry.action == "add"}
    where = {uri: path for uri in sorted(wanted) if (path := _path_in(sink, uri)) and not _has(names, path)}
    found = {path: place for path in where.values() if (place := _set_aside_as(names, path))}
    lost = [uri for uri, path in where.items() if path not in found]
    coming: list[Step] = [
        Put("sink", f"{SINK_LOG}/{name}", log_with(entry for entry in entries if entry.path not in lost))
        for name, entries in log.items()
    ]
    coming += [Link("sink", place, path) for path, place in found.items()]
    warning = (
        f"{count(len(lost), 'file')} of earlier batches cannot be found in the sink, and its log will not list them; the "
        f"first is {lost[0]}"
        if lost
        else None
    )
    return SinkSwap(tuple(steps_aside(sink, wanted, change_id)), tuple(coming), (warning,) if warning else ())


def steps_aside(sink: FileTree, wanted: Collection[str], change_id: str) -> Iterator[Move]:
    """Yield the moves of the present log, and of the data files that it lists and that are not wanted."""
    names = {folder: frozenset(found) for folder, found in sink.tree("").items()}
    for name in sorted(names.get(SINK_LOG, ())):
        yield set_aside(change_id, "sink", f"{SINK_LOG}/{name}")
    log = FileSinkLog(sink)
    listed = {entry.path for number in log.names.ids for entry in log.read(number).entries if entry.action == "add"}
    for uri in sorted(listed - set(wanted)):
        path = relative_to_sink(sink, uri)
        yield from (set_aside(change_id, "sink", one) for one in (path, hadoop_crc_of(path)) if _has(names, one))


def _path_in(sink: FileTree, uri: str) -> str | None:
    """Return the path of a data file in the sink; None if it is elsewhere, where it is left alone."""
    try:
        return relative_to_sink(sink, uri)
    except ChangeRefused:
        return None


def _has(names: Mapping[str, Collection[str]], path: str) -> bool:
    folder, name = parent_and_name(path)
    return name in names.get(folder, ())


def _set_aside_as(names: Mapping[str, Collection[str]], path: str) -> str | None:
    """Return where the newest change that set a file aside has put it."""
    changes = {folder.split("/")[2] for folder in names if folder.startswith(f"{QUARANTINE}/")}
    places = (join(f"{QUARANTINE}/{change}", path) for change in sorted(changes, reverse=True))
    return next((place for place in places if _has(names, place)), None)
