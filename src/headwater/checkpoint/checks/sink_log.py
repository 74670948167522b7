"""A file sink's log ends with the last commit and has no gaps, and its data files exist with the recorded size."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.file_logs import FileSinkLog, SinkFile
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import SINK_LOG
from headwater.checkpoint.record import files_uri, sink_of
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    if context.sink is None:
        return
    log = FileSinkLog(context.sink)
    place = f"{context.sink.location.rstrip('/')}/{SINK_LOG}"
    if not log.names.ids:
        if context.last_committed is not None:
            message = (
                f"is missing, but the checkpoint has committed batch {context.last_committed}: "
                "check that this is the right sink"
            )
            yield Finding("error", "sink-log-missing", place, message)
        return
    yield from _end(context, log, place)
    yield from _contents(context.sink, log, place)


def _end(context: CheckContext, log: FileSinkLog, place: str) -> Iterator[Finding]:
    newest = log.names.ids[-1]
    done = -1 if context.last_committed is None else context.last_committed
    planned, by_now = context.newest, done
    if newest > done:  # a running query may have planned and committed it since the logs were listed
        now = context.again()
        by_now = max(done, -1 if now.last_committed is None else now.last_committed)
        planned = max(planned, now.newest)
    if newest > planned:
        end = "has no batches" if planned < 0 else f"ends at batch {planned}"
        message = (
            f"ends at batch {newest}, but the checkpoint {end}: the sink would skip batches up to {newest} silently"
        )
        yield Finding("error", "sink-ahead", place, message)
    elif newest < done:
        message = f"ends at batch {newest}, but the checkpoint has committed batch {done}: output is missing"
        yield Finding("error", "sink-behind", place, message)
    elif newest > by_now and context.logs.is_format_two:
        message = (
            f"contains batch {newest}, which was never committed: Spark skips it and, with checkpoint format 2, cannot "
            f"continue; run headwater rewind {shlex.quote(context.files.location)} --redo {newest}{_sink_option(context)}"
        )
        yield Finding("error", "batch-stuck", place, message)
    missing = log.names.missing_for(newest)
    if missing:
        message = (
            f"lacks batch {', '.join(map(str, missing))}: the output cannot be read, and the next compaction will fail"
        )
        yield Finding("error", "sink-gap", f"{place}/{missing[0]}", message)


def _sink_option(context: CheckContext) -> str:
    """Return the option that names the sink to a command that would not find it in the record."""
    assert context.sink is not None
    recorded = sink_of(context.files)
    is_known = recorded is not None and recorded.location.rstrip("/") == context.sink.location.rstrip("/")
    return "" if is_known else f" --sink {shlex.quote(files_uri(context.sink.location))}"


def _contents(sink: FileTree, log: FileSinkLog, place: str) -> Iterator[Finding]:
    sizes = _sizes(sink)
    root = _root(sink)
    is_elsewhere = False
    for number in log.names.needed_for(log.names.ids[-1]):
        path = f"{place}/{log.names.by_id[number]}"
        try:
            entries = log.read(number).entries
        except CheckpointUnreadable as error:
            yield Finding("error", error.code, path, error.problem.removeprefix(f"{log.path(number)} "))
            continue
        for entry in entries:
            where = _path_in_store(entry.path)
            if where.startswith(f"{root}/"):
                yield from _data_file(entry, where[len(root) + 1 :], sizes, path)
            elif not is_elsewhere:
                is_elsewhere = True
                message = (
                    f"names files in another folder, such as {entry.path}: the sink was moved, and Spark still reads "
                    "the old location"
                )
                yield Finding("warning", "sink-elsewhere", path, message)


def _data_file(entry: SinkFile, relative: str, sizes: dict[str, int], path: str) -> Iterator[Finding]:
    found = sizes.get(relative)
    if entry.action != "add" or found == entry.size:
        return
    if found is None:
        message = f"names {relative}, which does not exist: readers will fail"
        yield Finding("error", "sink-file-missing", path, message)
    else:
        message = f"records {entry.size} bytes for {relative}, which has {found}"
        yield Finding("error", "sink-file-size", path, message)


def _sizes(sink: FileTree) -> dict[str, int]:
    found = {}
    for folder in sink.tree(""):
        if folder.split("/")[0] != SINK_LOG:
            for entry in sink.entries(folder):
                found[f"{folder}/{entry.name}" if folder else entry.name] = entry.size
    return found


def _root(sink: FileTree) -> str:
    """Return the sink's folder in the form in which ``_path_in_store`` returns its files."""
    uri = sink.spark_uri()
    return (uri.partition(":")[2] or uri).removeprefix("//").rstrip("/")


def _path_in_store(uri: str) -> str:
    """Return a URI without its scheme and percent-encoding: ``s3`` and ``s3a`` are the same store."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    return parts.netloc + unquote(parts.path)
