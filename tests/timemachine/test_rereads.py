"""Checks whether the input files that a rewind has to read again still exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.timemachine.effects import Reread, find_rereads


def one_batch(path: str) -> dict[str, bytes]:
    entry = json.dumps({"path": path, "timestamp": 1, "batchId": 0})
    plan = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    return {
        "metadata": b'{"id":"one"}',
        "offsets/0": f'v1\n{plan}\n{{"logOffset":0}}'.encode(),
        "commits/0": b'v1\n{"nextBatchWatermarkMs":0}',
        "sources/0/0": f"v1\n{entry}".encode(),
    }


def reread_of(files: FileTree) -> Reread:
    (found,) = find_rereads(History(files), 0, lambda servers, topics: None)
    return found


@pytest.mark.parametrize(
    ("there", "elsewhere", "still_there", "why"),
    [
        (True, False, True, None),
        (False, False, False, "1 of 1 files are missing"),
        (True, True, True, None),
        (False, True, None, "another machine"),
    ],
)
def test_files_of_this_machine(
    tmp_path: Path, *, there: bool, elsewhere: bool, still_there: bool | None, why: str | None
) -> None:
    """A file that is found exists. If the checkpoint is in an object store, a missing file may be on another machine."""
    file = tmp_path / "in" / "1.json"
    if there:
        file.parent.mkdir()
        file.touch()
    contents = one_batch(file.as_uri())
    files: FileTree = MemoryTree(contents)
    if not elsewhere:
        files = LocalTree(tmp_path / "checkpoint")
        for path, data in contents.items():
            files.write(path, data)
    found = reread_of(files)
    assert (found.files, found.still_there) == (1, still_there)
    assert (why or "") in (found.why or "")


def test_files_on_an_object_store_are_not_checked() -> None:
    """Input files on an object store are not checked, because the credentials for it are unknown."""
    found = reread_of(MemoryTree(one_batch("s3a://bucket/in/1.json")))
    assert (found.files, found.still_there) == (1, None)
    assert "object store" in (found.why or "")
