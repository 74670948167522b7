"""Scratch checkpoints for replays, without Spark: what their logs contain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.checks import source_logs
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.file_logs import FileSourceLog
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import ChangeRefused
from headwater.timemachine.replay_scratch import (
    ReplayScratch,
    recorded_batches,
    scratch_with_state,
    scratch_without_state,
)

LAST = 12


def stream(compacted: tuple[int, ...]) -> MemoryTree:
    """Return a stateless stream that has read one file per batch, with some log files compacted."""
    files = as_memory_files("stateless")
    template = {path: files.read(path) for path in ("metadata", "offsets/1", "commits/1", "sources/0/1")}
    line = FileSourceLog(files, "sources/0").entries_at(1)
    assert line is not None
    for path in list(files.contents):
        files.remove(path)
    files.write("metadata", template["metadata"])
    for batch in range(LAST + 1):
        offsets = template["offsets/1"].replace(b'{"logOffset":1}', b'{"logOffset":%d}' % batch)
        files.write(f"offsets/{batch}", offsets)
        files.write(f"commits/{batch}", template["commits/1"])
        entries = [line[0].line.replace('"batchId":1', f'"batchId":{one}') for one in range(batch + 1)]
        name, held = (f"{batch}.compact", entries) if batch in compacted else (str(batch), entries[-1:])
        files.write(f"sources/0/{name}", "\n".join(["v1", *held]).encode())
    return files


def numbers(files: FileTree) -> list[int]:
    """Return the batch ids of all entries that a reader of the log finds."""
    log = FileSourceLog(files, "sources/0")
    return [entry.batch_id for entry in log.everything_upto(log.names.latest or 0) or ()]


@pytest.mark.parametrize("create", [scratch_with_state, scratch_without_state])
@pytest.mark.parametrize(
    ("compacted", "first", "last"), [((9,), 8, 12), ((9,), 0, 12), ((2, 5, 8, 11), 4, 12), ((2, 5, 8, 11), 5, 6)]
)
def test_spark_finds_a_compacted_file_where_it_expects_one(
    tmp_path: Path,
    create: Callable[[FileTree, int, Path], ReplayScratch],
    compacted: tuple[int, ...],
    first: int,
    last: int,
) -> None:
    """The log can be read after each batch that is planned, and names the files of all of them."""
    files = stream(compacted)
    interval = compacted[0] + 1
    scratch = create(files, first, tmp_path / "scratch")
    for batch in recorded_batches(files, first, last):
        scratch.plan_batch(batch)
        planned = batch - scratch.rebased_by
        log = FileSourceLog(scratch.checkpoint, "sources/0")
        assert log.names.latest == planned and not log.names.missing_for(planned)
        assert log.names.is_compact(planned) == ((planned + 1) % interval == 0)
        assert numbers(scratch.checkpoint) == list(range(planned + 1))
        assert not list(source_logs.check(CheckContext(scratch.checkpoint, 0)))


def test_a_batch_whose_start_is_unknown() -> None:
    """Without the offsets before it, everything since the beginning of the stream would be read."""
    files = stream((9,))
    for batch in range(7):
        files.remove(f"offsets/{batch}")
        files.remove(f"commits/{batch}")
    with pytest.raises(ChangeRefused, match="no longer shows where batch 7 started"):
        recorded_batches(files, 7, 8)
    assert recorded_batches(files, 8, 9) == [8, 9]


@pytest.mark.parametrize("name", ["named", "offsets2"])
def test_offsets_of_version_2_from_batch_0(tmp_path: Path, name: str) -> None:
    """Nothing has to be renumbered, so a replay from empty state is possible."""
    files = as_memory_files(name)
    scratch = scratch_without_state(files, 0, tmp_path / "scratch")
    scratch.plan_batch(0)
    assert scratch.checkpoint.read("offsets/0") == files.read("offsets/0")
    assert History(scratch.checkpoint).batch_ids == (0,)
