"""Every text file can be parsed, and no state file is empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.file_logs import parse_file_source_log
from headwater.checkpoint.layout import (
    JOB_FILE,
    METADATA,
    PENDING_FILE,
    SOURCES,
    STATE,
    log_id,
    parent_and_name,
    state_file,
)
from headwater.checkpoint.log_entries import parse_query_metadata
from headwater.checkpoint.logtext import LogText, json_value, read_bytes, unreadable_file
from headwater.checkpoint.moved import INCOMPLETE, POINTER
from headwater.checkpoint.operator_metadata import parse_operator_metadata
from headwater.checkpoint.record import parse_job_record
from headwater.checkpoint.source_offsets import kind_of, offset_value
from headwater.core.errors import CheckpointUnreadable
from headwater.core.finding import Finding, Severity


def check(context: CheckContext) -> Iterator[Finding]:
    yield from _batch_logs(context)
    yield from _query_metadata(context)
    yield from _source_logs(context)
    yield from _state_files(context)
    if context.files.exists(JOB_FILE):
        yield from _parse(context, JOB_FILE, lambda data, _: parse_job_record(data), severity="warning")


def _batch_logs(context: CheckContext) -> Iterator[Finding]:
    for log in (context.logs.offsets, context.logs.commits):
        for number in log.ids:
            error = log.outcome(number).error
            # Spark may have removed an old batch since the log was listed.
            if error is not None and not (error.code == "missing-file" and _is_gone(context, log.path(number))):
                yield finding_of(error, log.path(number))


def _is_gone(context: CheckContext, path: str) -> bool:
    folder, name = parent_and_name(path)
    return name not in context.files.names(folder).files


def _query_metadata(context: CheckContext) -> Iterator[Finding]:
    if any(context.files.exists(path) for path in (PENDING_FILE, POINTER, INCOMPLETE)):
        return  # an interrupted change or a move has replaced the metadata by a notice
    if context.has(METADATA):
        yield from _parse(context, METADATA, parse_query_metadata)
    elif context.logs.batch_ids:
        message = "is missing: Spark does not resume a query without its id"
        yield Finding("error", "metadata-missing", METADATA, message)


def _source_logs(context: CheckContext) -> Iterator[Finding]:
    latest = context.last_planned
    entry = None if latest is None else context.logs.offsets.get(latest)
    for source in entry.sources if entry else ():
        value = offset_value(source.text)
        kind = kind_of(value, context.logs.hint(source.name, value))
        parse = _PARSERS.get(kind)
        folder = f"{SOURCES}/{context.logs.source_folder(source.name)}"
        for name in context.tree.get(folder, ()) if parse else ():
            if log_id(name) is not None and parse is not None:
                yield from _parse(context, f"{folder}/{name}", parse)


def _parse_first_offset(data: bytes, path: str) -> object:
    """Parse what Kafka (after a zero byte) and the rate source write once: a version and a JSON value."""
    text = LogText.from_bytes(data.removeprefix(b"\0"), path)
    if not text.lines[0].startswith("v"):  # Spark 2.1.0 wrote no version here
        return json_value("\n".join(text.lines), path)
    text.version(path, newest=1)
    if not text.body:
        raise unreadable_file("torn-file", path, "ends after its version line")
    return json_value("\n".join(text.body), path)


_PARSERS: dict[str, Callable[[bytes, str], object]] = {
    "files": parse_file_source_log,
    "table": parse_file_source_log,
    "kafka": _parse_first_offset,
    "rate": _parse_first_offset,
}


def _state_files(context: CheckContext) -> Iterator[Finding]:
    for folder, names in context.tree.items():
        parts = folder.split("/")
        if parts[0] != STATE:
            continue
        is_metadata = len(parts) >= 3 and parts[2] == "_metadata"
        for name in names:
            path = f"{folder}/{name}"
            if is_metadata and (name == "metadata" or (parts[-1] == "v2" and name.isdigit())):
                yield from _parse(context, path, parse_operator_metadata)
            elif state_file(name) or name == "schema" or "_stateSchema" in parts:
                yield from _empty(context, path)


def _empty(context: CheckContext, path: str) -> Iterator[Finding]:
    entry = context.entry(path)
    if entry is not None and entry.size == 0 and not parent_and_name(path)[1].startswith("."):
        yield Finding("error", "empty-file", path, "is empty")


def _parse(
    context: CheckContext, path: str, parse: Callable[[bytes, str], object], *, severity: Severity = "error"
) -> Iterator[Finding]:
    try:
        parse(read_bytes(context.files, path), path)
    except CheckpointUnreadable as error:
        yield finding_of(error, path, severity=severity)


def finding_of(error: CheckpointUnreadable, path: str, *, severity: Severity = "error") -> Finding:
    """Return the finding for an unreadable file, with the error's code."""
    return Finding(severity, error.code, path, error.problem.removeprefix(f"{path} "))
