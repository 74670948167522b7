"""A file sink's log ends where the commits end, has no gaps, and the data files that it names are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.file_logs import FileSinkLog, SinkFile
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import stuck_batch
from headwater.checkpoint.layout import SINK_LOG
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    if scene.sink is None:
        return
    log = FileSinkLog(scene.sink)
    place = f"{scene.sink.location.rstrip('/')}/{SINK_LOG}"
    if not log.names.ids:
        if scene.last_committed is not None:
            message = (
                f"is not there, and the checkpoint has committed batch {scene.last_committed}: is this the right sink?"
            )
            yield Finding("error", "sink-log-missing", place, message)
        return
    yield from _step(scene, log, place)
    yield from _contents(scene.sink, log, place)


def _step(scene: Scene, log: FileSinkLog, place: str) -> Iterator[Finding]:
    newest = log.names.ids[-1]
    done = -1 if scene.last_committed is None else scene.last_committed
    planned = max(done, -1 if scene.last_planned is None else scene.last_planned)
    if newest > planned:
        message = (
            f"ends at batch {newest}, the checkpoint at {planned}: the sink would silently skip batches up to {newest}"
        )
        yield Finding("error", "sink-ahead", place, message)
    elif newest < done:
        message = f"ends at batch {newest}, the checkpoint has committed {done}: output is missing"
        yield Finding("error", "sink-behind", place, message)
    elif stuck_batch(scene.logs, scene.sink) is not None:
        message = (
            f"has batch {newest}, which was never committed: Spark skips it and, with checkpoint format 2, does not go on; "
            f"headwater rewind {scene.files.location} --redo {newest} has it run again"
        )
        yield Finding("error", "batch-stuck", place, message)
    missing = log.names.missing_for(newest)
    if missing:
        message = (
            f"lacks batch {', '.join(map(str, missing))}: the output cannot be read, and the next compaction fails"
        )
        yield Finding("error", "sink-gap", f"{place}/{missing[0]}", message)


def _contents(sink: FileTree, log: FileSinkLog, place: str) -> Iterator[Finding]:
    sizes = _sizes(sink)
    root = _root(sink)
    elsewhere = False
    for number in log.names.needed_for(log.names.ids[-1]):
        path = f"{place}/{log.names.by_id[number]}"
        try:
            entries = log.read(number).entries
        except CheckpointUnreadable as error:
            yield Finding("error", error.code, path, error.problem.removeprefix(f"{log.path_of(number)} "))
            continue
        for entry in entries:
            where = _place(entry.path)
            if where.startswith(f"{root}/"):
                yield from _data_file(entry, where[len(root) + 1 :], sizes, path)
            elif not elsewhere:
                elsewhere = True
                message = (
                    f"names files elsewhere, such as {entry.path}: the folder was moved, and Spark reads the old place"
                )
                yield Finding("warning", "sink-elsewhere", path, message)


def _data_file(entry: SinkFile, relative: str, sizes: dict[str, int], path: str) -> Iterator[Finding]:
    found = sizes.get(relative)
    if entry.action != "add" or found == entry.size:
        return
    if found is None:
        yield Finding("error", "sink-file-missing", path, f"names {relative}, which is not there: readers will fail")
    else:
        yield Finding("error", "sink-file-size", path, f"says that {relative} has {entry.size} bytes, it has {found}")


def _sizes(sink: FileTree) -> dict[str, int]:
    found = {}
    for folder in sink.tree(""):
        if folder.split("/")[0] != SINK_LOG:
            for entry in sink.entries(folder):
                found[f"{folder}/{entry.name}" if folder else entry.name] = entry.size
    return found


def _root(sink: FileTree) -> str:
    """The sink's folder in the form that ``_place`` gives its files."""
    if sink.is_local:
        return str(Path(sink.location).absolute())
    return _place(sink.location).rstrip("/")


def _place(uri: str) -> str:
    """A URI without its scheme: s3 and s3a are one place, and a local file is its path."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    return parts.netloc + unquote(parts.path)
