"""A file source's log has every log offset that the batches name, and not many more."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.file_logs import LogNames
from headwater.checkpoint.layout import SOURCES
from headwater.checkpoint.source_offsets import kind_of, log_offset, offset_value
from headwater.core.finding import Finding


def check(scene: Scene) -> Iterator[Finding]:
    latest = scene.last_planned
    entry = None if latest is None else scene.logs.offsets.get(latest)
    for source in entry.sources if entry else ():
        value = offset_value(source.text)
        position = log_offset(value)
        if position is not None and kind_of(value, scene.logs.hint(source.name, value)) in ("files", "table"):
            folder = f"{SOURCES}/{source.name}"
            names = LogNames.of(scene.tree.get(folder, ()))
            yield from _compared(names, position, folder, scene.logs.offsets.path(latest or 0))


def _compared(names: LogNames, position: int, folder: str, planned: str) -> Iterator[Finding]:
    for name in names.duplicates:
        yield Finding("warning", "source-log-duplicate", f"{folder}/{name}", "is a second file for the same log offset")
    newest = -1 if names.latest is None else names.latest
    if newest < position:
        end = newest if names.ids else "nothing"
        message = f"ends at {end}, {planned} names log offset {position}: input files are forgotten"
        yield Finding("error", "source-log-behind", folder, message)
    missing = names.missing_for(newest)
    if missing:
        message = (
            f"lacks log offset {', '.join(map(str, missing))}: Spark needs all of them since the last .compact file"
        )
        yield Finding("error", "source-log-gap", f"{folder}/{missing[0]}", message)
    ahead = newest - position
    if ahead == 1:
        message = f"is one log offset ahead of {planned}: a batch was about to be planned, its files come next"
        yield Finding("info", "source-log-ahead", folder, message)
    elif ahead > 1:
        message = f"is {ahead} log offsets ahead of {planned}: the files of all of them will be put into one batch"
        yield Finding("warning", "source-log-ahead", folder, message)
