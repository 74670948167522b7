"""A file source's log has every log offset that the batches refer to, and at most one more."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.file_logs import LogNames
from headwater.checkpoint.layout import SOURCES
from headwater.checkpoint.log_entries import text_of_source
from headwater.checkpoint.source_offsets import kind_of, log_offset, offset_value
from headwater.core.finding import Finding


def check(context: CheckContext) -> Iterator[Finding]:
    latest = context.last_planned
    entry = None if latest is None else context.logs.offsets.get(latest)
    for source in entry.sources if entry else ():
        value = offset_value(source.text)
        position = log_offset(value)
        if position is not None and kind_of(value, context.logs.hint(source.name, value)) in ("files", "table"):
            folder = f"{SOURCES}/{context.logs.source_folder(source.name)}"
            names = LogNames.of(context.tree.get(folder, ()))
            planned = context.logs.offsets.path(latest or 0)
            if names.latest is not None and names.latest > position + 1:
                position, planned = _position_by_now(context, source.name, names.latest) or (position, planned)
            yield from _compare(names, position, folder, planned)


def _position_by_now(context: CheckContext, source: str, listed: int) -> tuple[int, str] | None:
    """Return how far a running query has read the listed log by now, and the path of the offsets that say so."""
    offsets = context.again().logs.offsets
    entry = None if offsets.latest is None else offsets.get(offsets.latest)
    text = text_of_source(entry, source)
    position = log_offset(offset_value(text))
    return None if position is None else (min(position, listed), offsets.path(offsets.latest or 0))


def _compare(names: LogNames, position: int, folder: str, planned: str) -> Iterator[Finding]:
    for name in names.duplicates:
        yield Finding("warning", "source-log-duplicate", f"{folder}/{name}", "is a second file for the same log offset")
    newest = -1 if names.latest is None else names.latest
    if newest < position:
        end = f"ends at log offset {newest}" if names.ids else "is empty"
        message = f"{end}, but {planned} refers to {position}: the names of input files are lost"
        yield Finding("error", "source-log-behind", folder, message)
    missing = names.missing_for(newest)
    if missing:
        message = (
            f"lacks log offset {', '.join(map(str, missing))}: Spark needs all of them since the last .compact file"
        )
        yield Finding("error", "source-log-gap", f"{folder}/{missing[0]}", message)
    ahead = newest - position
    if ahead == 1:
        message = f"is one log offset ahead of {planned}: the next batch will read these files"
        yield Finding("info", "source-log-ahead", folder, message)
    elif ahead > 1:
        message = f"is {ahead} log offsets ahead of {planned}: the next batch will read all of their files"
        yield Finding("warning", "source-log-ahead", folder, message)
