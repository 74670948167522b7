"""Recorded batches on a scratch checkpoint with empty state: batch A becomes batch 0, with the same input.

For code whose state has another shape than the recorded one: neither job then sees what came before batch A.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from headwater.checkpoint.file_source_log import FileEntry, log_with
from headwater.checkpoint.files import Files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import METADATA, OFFSETS, SOURCES
from headwater.checkpoint.local_files import LocalFiles
from headwater.checkpoint.logtext import LogText
from headwater.checkpoint.source_offsets import SourceRange, log_offset
from headwater.core.errors import ChangeRefused
from headwater.core.ids import BatchId
from headwater.timemachine.recorded import Stage


def empty_stage(files: Files, first: int, folder: Path) -> Stage:
    """A checkpoint without history whose sources start where batch ``first`` did."""
    scratch = LocalFiles(folder)
    history = History(files)
    for part in history.batch(BatchId(first)).sources:
        if part.kind == "kafka":
            scratch.write(f"{SOURCES}/{part.name}/0", _kafka_start(files, part))
        elif part.kind not in ("files", "table"):
            raise ChangeRefused(
                "cannot-rebase",
                f"a {part.kind} source cannot be started in its middle",
                remedy="replay without --from-empty-state, or from batch 0 on",
            )
    scratch.write(METADATA, json.dumps({"id": str(uuid.uuid4())}).encode())
    return Stage(scratch, partial(_lay_in, files, scratch, first), rebased_by=first)


def _lay_in(files: Files, scratch: Files, first: int, batch: int) -> None:
    """Plan a recorded batch on the scratch under its number there, ``batch - first``."""
    history = History(files)
    entry = history.logs.offsets.read(batch)
    if entry.version != 1:
        raise ChangeRefused(
            "cannot-rebase", "offset logs of version 2 cannot be rebased", remedy="replay from batch 0 on"
        )
    number = batch - first
    ends: dict[str, str] = {}
    for part in history.batch(BatchId(batch)).sources:
        if part.kind in ("files", "table"):
            ends[part.name] = json.dumps({"logOffset": number})
            scratch.write(f"{SOURCES}/{part.name}/{number}", _files_of(history, part, number))
    lines = list(_with_ends(entry.text, [source.name for source in entry.sources], ends))
    scratch.write(f"{OFFSETS}/{number}", "\n".join(lines).encode("utf-8"))


def _with_ends(text: LogText, names: list[str], ends: dict[str, str]) -> Iterator[str]:
    """The version line, the metadata line, then one line for each source."""
    for place, line in enumerate(text.lines):
        name = names[place - 2] if 2 <= place < len(names) + 2 else None
        yield ends.get(name, line) if name is not None else line


def _files_of(history: History, part: SourceRange, number: int) -> bytes:
    start, end = log_offset(part.start) if part.start is not None else -1, log_offset(part.end)
    entries = () if end is None else history.source_log(part.name).entries_between(-1 if start is None else start, end)
    if entries is None:
        raise ChangeRefused("source-log-gone", "the source's log no longer tells which files these were")
    return log_with(_renumbered(entry, number) for entry in entries)


def _renumbered(entry: FileEntry, number: int) -> FileEntry:
    held = {**json.loads(entry.line), "batchId": number}
    return FileEntry(entry.path, entry.timestamp_ms, number, json.dumps(held))


def _kafka_start(files: Files, part: SourceRange) -> bytes:
    """The first-offsets file of the recorded source with other offsets in it."""
    recorded = files.read(f"{SOURCES}/{part.name}/0")
    head = recorded[: recorded.index(b"{")]
    return head + json.dumps(part.start).encode()
