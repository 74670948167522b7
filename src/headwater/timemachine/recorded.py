"""A scratch checkpoint on which recorded batches run again, one at a time, with the offsets that they had.

Spark runs the batch whose offsets are there and whose commit is not, and plans nothing of its own before that. So the
scratch is a fork that ends before the first batch; each further batch is laid in by its recorded offsets.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headwater.checkpoint.file_logs import FileEntry, source_log_with
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import METADATA, OFFSETS, SOURCES
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.logtext import LogText
from headwater.checkpoint.source_offsets import SourceRange, log_offset, offset_value
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.core.ids import BatchId
from headwater.timemachine.fork import carry_out_fork, plan_fork


def recorded_batches(files: FileTree, first: int, last: int) -> list[int]:
    """The batches to run again; refused when the log lacks one of them."""
    history = History(files)
    wanted = list(range(first, last + 1))
    missing = [number for number in wanted if number not in history.logs.offsets.entries]
    if missing or not wanted:
        held = history.logs.offsets.ids
        raise ChangeRefused(
            "no-batch",
            f"the offsets of batch {missing[0] if missing else first} are not in the log",
            evidence={"recorded": f"{held[0]} to {held[-1]}" if held else "none"},
            remedy=f"headwater log {files.location}",
        )
    return wanted


@dataclass(frozen=True)
class Stage:
    """A scratch checkpoint and the way to plan a recorded batch on it, where its number is lower by ``rebased_by``."""

    scratch: LocalTree
    lay_in: Callable[[int], None]
    rebased_by: int = 0


def forked_stage(files: FileTree, first: int, folder: Path) -> Stage:
    """With the state that the first batch started from."""
    scratch = LocalTree(folder)
    carry_out_fork(plan_fork(files, scratch, at=first - 1 if first > 0 else None, keep_next=True), scratch)
    return Stage(scratch, partial(_lay_in, files, scratch))


def _lay_in(files: FileTree, scratch: FileTree, batch: int) -> None:
    """Have a batch's recorded offsets run next on the scratch, whatever the source has by now."""
    history = History(files)
    entry = history.logs.offsets.read(batch)
    for name, data in _source_log_files(history, scratch, batch):
        scratch.write(name, data)
    scratch.write(f"{OFFSETS}/{batch}", entry.to_bytes())


def _source_log_files(history: History, scratch: FileTree, batch: int) -> Iterator[tuple[str, bytes]]:
    """The part of a file source's log that the batch reads, where the scratch does not have it yet."""
    entry = history.logs.offsets.read(batch)
    for source in entry.sources:
        end = log_offset(offset_value(source.text))
        if end is None or history.logs.hint(source.name).kind not in ("files", "table"):
            continue
        held = {item.name.partition(".")[0] for item in scratch.entries(f"{SOURCES}/{source.name}")}
        newest = max((int(name) for name in held if name.isdigit()), default=-1)
        for number in range(newest + 1, end + 1):
            entries = history.source_log(source.name).entries_at(number)
            if entries is None:
                raise CheckpointUnreadable(
                    "source-log-gone",
                    f"the log of file source {source.name} no longer tells which files batch {batch} read",
                    remedy="replay a later batch",
                )
            yield f"{SOURCES}/{source.name}/{number}", source_log_with(entries)


def empty_stage(files: FileTree, first: int, folder: Path) -> Stage:
    """A checkpoint without history whose sources start where batch ``first`` did."""
    scratch = LocalTree(folder)
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
    return Stage(scratch, partial(_lay_in_renumbered, files, scratch, first), rebased_by=first)


def _lay_in_renumbered(files: FileTree, scratch: FileTree, first: int, batch: int) -> None:
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
    return source_log_with(_renumbered(entry, number) for entry in entries)


def _renumbered(entry: FileEntry, number: int) -> FileEntry:
    held = {**json.loads(entry.line), "batchId": number}
    return FileEntry(entry.path, entry.timestamp_ms, number, json.dumps(held))


def _kafka_start(files: FileTree, part: SourceRange) -> bytes:
    """The first-offsets file of the recorded source with other offsets in it."""
    recorded = files.read(f"{SOURCES}/{part.name}/0")
    head = recorded[: recorded.index(b"{")]
    return head + json.dumps(part.start).encode()
