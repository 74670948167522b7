"""Scratch checkpoints on which recorded batches run again, one at a time, with the offsets that they had.

Spark runs a batch that has offsets and no commit before it plans any other. So the scratch is a fork that ends before
the first batch, and each further batch is planned by copying its recorded offsets.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headwater.checkpoint.file_logs import FileEntry, FileSourceLog, log_with
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import COMPACT, METADATA, OFFSETS, SOURCES
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.logtext import LogText
from headwater.checkpoint.source_offsets import SourceRange, log_offset, offset_value
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.core.ids import BatchId
from headwater.timemachine.compacted_log import is_compaction
from headwater.timemachine.cuts import was_added
from headwater.timemachine.earlier_layout import history_before
from headwater.timemachine.fork import plan_fork
from headwater.timemachine.seed_record import refuse_before_seed


@dataclass(frozen=True)
class ReplayScratch:
    """A scratch checkpoint. ``plan_batch`` plans a recorded batch on it, under a number lower by ``rebased_by``."""

    checkpoint: LocalTree
    plan_batch: Callable[[int], None]
    rebased_by: int = 0


def recorded_batches(files: FileTree, first: int, last: int) -> list[int]:
    """Return the batches to run again. Raise ``ChangeRefused`` if the log does not contain all of them."""
    history = History(files)
    wanted = list(range(first, last + 1))
    missing = [number for number in wanted if number not in history.logs.offsets.entries]
    if missing or not wanted:
        ids = history.logs.offsets.ids
        raise ChangeRefused(
            "no-batch",
            f"the log does not contain the offsets of batch {missing[0] if missing else first}",
            evidence={"recorded": f"{ids[0]} to {ids[-1]}" if ids else "none"},
            remedy=f"headwater log {files.location}",
        )
    if first > 0 and first - 1 not in history.logs.offsets.entries:
        raise ChangeRefused(
            "no-batch",
            f"the log no longer shows where batch {first} started: it has no entry for batch {first - 1}",
            evidence={"recorded": f"{history.logs.offsets.ids[0]} to {history.logs.offsets.ids[-1]}"},
            remedy="replay a later batch",
        )
    refuse_before_seed(files, first)
    added = next((number for number in wanted if was_added(history, number)), None)
    if added is not None:
        raise ChangeRefused(
            "cannot-replay",
            f"batch {added} read no input: an edit, a migration or a repartition added it for its state",
            evidence={"checkpoint": files.location, "asked for": f"{first} to {last}"},
            remedy="replay the batches before it and those after it, each with a --batch of its own",
        )
    return wanted


def scratch_with_state(files: FileTree, first: int, folder: Path) -> ReplayScratch:
    """Create a scratch checkpoint with the state from which the first batch started."""
    scratch = LocalTree(folder)
    plan_fork(files, scratch, at=first - 1 if first > 0 else None, keep_next=True).apply()
    # A later migration may have moved the sources.
    former = history_before(History(files), first).files
    return ReplayScratch(scratch, partial(_plan_batch, former, scratch))


def scratch_without_state(files: FileTree, first: int, folder: Path) -> ReplayScratch:
    """Create a scratch checkpoint without batches, whose sources start where batch ``first`` started."""
    scratch = LocalTree(folder)
    history = History(files)
    for part in history.batch(BatchId(first)).sources:
        if part.kind == "kafka":
            path = f"{SOURCES}/{history.logs.source_folder(part.name)}/0"
            scratch.write(path, _kafka_start(files, part, path))
        elif part.kind not in ("files", "table"):
            raise ChangeRefused(
                "cannot-rebase",
                f"cannot start a {part.kind} source in the middle of its stream",
                remedy="replay without --from-empty-state, or from batch 0",
            )
    scratch.write(METADATA, json.dumps({"id": str(uuid.uuid4())}).encode())
    return ReplayScratch(scratch, partial(_plan_rebased_batch, files, scratch, first), rebased_by=first)


def _plan_batch(files: FileTree, scratch: FileTree, batch: int) -> None:
    """Make a batch run next on the scratch checkpoint with its recorded offsets."""
    history = History(files)
    for name, data in _source_log_files(history, scratch, batch):
        scratch.write(name, data)
    scratch.write(f"{OFFSETS}/{batch}", history.logs.offsets.read(batch).text.to_bytes())


def _source_log_files(history: History, scratch: FileTree, batch: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a file source's log that the batch needs and the scratch checkpoint does not have yet."""
    entry = history.logs.offsets.read(batch)
    for source in entry.sources:
        end = log_offset(offset_value(source.text))
        if end is None or history.logs.hint(source.name).kind not in ("files", "table"):
            continue
        folder = f"{SOURCES}/{history.logs.source_folder(source.name)}"
        log = history.source_log(source.name)
        planned = FileSourceLog(scratch, folder).names
        compacted = planned.compact_ids or log.names.compact_ids
        for number in range(0 if planned.latest is None else planned.latest + 1, end + 1):
            is_compact = is_compaction(compacted, number)
            entries = log.everything_upto(number) if is_compact else log.entries_at(number)
            if entries is None:
                raise CheckpointUnreadable(
                    "source-log-gone",
                    f"the log of file source {source.name} no longer lists the files that batch {batch} read",
                    remedy="replay a later batch",
                )
            yield f"{folder}/{number}{COMPACT if is_compact else ''}", log_with(entries)


def _plan_rebased_batch(files: FileTree, scratch: FileTree, first: int, batch: int) -> None:
    """Make a batch run next on the scratch checkpoint as batch ``batch - first``."""
    history = History(files)
    entry = history.logs.offsets.read(batch)
    if first == 0:  # nothing gets another number
        _plan_batch(files, scratch, batch)
        return
    if entry.version != 1:
        raise ChangeRefused(
            "cannot-rebase",
            f"cannot renumber offset logs of version {entry.version}",
            remedy="replay without --from-empty-state, or from batch 0",
        )
    number = batch - first
    ends: dict[str, str] = {}
    for part in history.batch(BatchId(batch)).sources:
        if part.kind in ("files", "table"):
            ends[part.name] = json.dumps({"logOffset": number})
            folder = f"{SOURCES}/{history.logs.source_folder(part.name)}"
            log, entries = FileSourceLog(scratch, folder), _files_of(history, part, number)
            of_original = history.source_log(part.name).names.compact_ids
            # A single compacted file may be the second one: then only Spark's setting tells the interval.
            if is_compaction(log.names.compact_ids or (of_original if len(of_original) > 1 else ()), number):
                earlier = log.everything_upto(number - 1) if number > 0 else ()
                scratch.write(f"{folder}/{number}{COMPACT}", log_with((*(earlier or ()), *entries)))
            else:
                scratch.write(f"{folder}/{number}", log_with(entries))
    lines = list(_with_ends(entry.text, [source.name for source in entry.sources], ends))
    scratch.write(f"{OFFSETS}/{number}", "\n".join(lines).encode("utf-8"))


def _with_ends(text: LogText, names: list[str], ends: dict[str, str]) -> Iterator[str]:
    """Yield the lines of an offsets file with other offsets: version, metadata, then one line per source."""
    for place, line in enumerate(text.lines):
        name = names[place - 2] if 2 <= place < len(names) + 2 else None
        yield ends.get(name, line) if name is not None else line


def _files_of(history: History, part: SourceRange, number: int) -> list[FileEntry]:
    """Return the input files of a batch under another number."""
    entries = history.input_files(part.name, part.start, part.end)
    if entries is None:
        raise ChangeRefused("source-log-gone", "the source's log no longer lists the files that the batch read")
    return [_renumbered(entry, number) for entry in entries]


def _renumbered(entry: FileEntry, number: int) -> FileEntry:
    line = json.dumps({**json.loads(entry.line), "batchId": number})
    return FileEntry(entry.path, entry.timestamp_ms, number, line)


def _kafka_start(files: FileTree, part: SourceRange, path: str) -> bytes:
    """Return the initial-offsets file of the source with other offsets."""
    recorded = files.read(path)
    head = recorded[: recorded.index(b"{")]
    return head + json.dumps(part.start).encode()
