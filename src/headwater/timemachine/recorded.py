"""A scratch checkpoint on which recorded batches run again, one at a time, with the offsets that they had.

Spark runs the batch whose offsets are there and whose commit is not, and plans nothing of its own before that. So the
scratch is a fork that ends before the first batch; each further batch is laid in by its recorded offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headwater.checkpoint.file_source_log import log_with
from headwater.checkpoint.files import Files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import OFFSETS, SOURCES
from headwater.checkpoint.local_files import LocalFiles
from headwater.checkpoint.source_offsets import log_offset, offset_value
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.timemachine.fork import carry_out_fork, plan_fork


def recorded_batches(files: Files, first: int, last: int) -> list[int]:
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

    scratch: LocalFiles
    lay_in: Callable[[int], None]
    rebased_by: int = 0


def forked_stage(files: Files, first: int, folder: Path) -> Stage:
    """With the state that the first batch started from."""
    scratch = LocalFiles(folder)
    carry_out_fork(plan_fork(files, scratch, at=first - 1 if first > 0 else None, keep_next=True), scratch)
    return Stage(scratch, partial(_lay_in, files, scratch))


def _lay_in(files: Files, scratch: Files, batch: int) -> None:
    """Have a batch's recorded offsets run next on the scratch, whatever the source has by now."""
    history = History(files)
    entry = history.logs.offsets.read(batch)
    for name, data in _source_log_files(history, scratch, batch):
        scratch.write(name, data)
    scratch.write(f"{OFFSETS}/{batch}", entry.to_bytes())


def _source_log_files(history: History, scratch: Files, batch: int) -> Iterator[tuple[str, bytes]]:
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
            yield f"{SOURCES}/{source.name}/{number}", log_with(entries)
