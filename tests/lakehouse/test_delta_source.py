"""What a streaming query reads from a Delta table, from the table's log alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.table_offsets import DeltaPosition
from headwater.lakehouse.delta_actions import commit_path
from headwater.lakehouse.delta_log import DeltaLog
from headwater.lakehouse.delta_source import reads_between, start_position, unread_rows, unreadable_part


def add(path: str, rows: int = 1, *, at: int = 0, **more: Any) -> dict[str, Any]:
    stats = json.dumps({"numRecords": rows})
    action = {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": at,
        "dataChange": True,
        "stats": stats,
    }
    return {"add": {**action, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, **more}}


def table(*commits: Sequence[dict[str, Any]]) -> DeltaLog:
    """Return a table whose data files all exist."""
    files = MemoryTree()
    start = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": {"id": "t"}}]
    for version, actions in enumerate(commits):
        lines = [json.dumps(action) for action in ([*start, *actions] if version == 0 else actions)]
        files.write(commit_path(version), "\n".join(lines).encode())
        for action in actions:
            if "add" in action:
                files.write(action["add"]["path"], b"rows")
    return DeltaLog(files)


def at(version: int, file: int | None = None, *, snapshot: bool = False) -> DeltaPosition:
    return DeltaPosition(version, file, snapshot, "t")


def read(log: DeltaLog, start: DeltaPosition, end: DeltaPosition) -> list[str]:
    return [action["path"] for part in reads_between(log, start, end) for action in part.adds]


LOG = (
    [add("b", at=2), add("a", at=1)],
    [add("c", at=3), add("d", at=4)],
    [add("cd", at=5, dataChange=False), remove("c", dataChange=False), remove("d", dataChange=False)],
    [add("e", at=6)],
)


@pytest.mark.parametrize(
    ("start", "end", "paths"),
    [
        (at(1, snapshot=True), at(1, 1, snapshot=True), ["a", "b"]),
        (at(1, 1, snapshot=True), at(1, 3, snapshot=True), ["c", "d"]),
        (at(1, 1, snapshot=True), at(4), ["c", "d", "e"]),
        (at(2, snapshot=True), at(4), ["a", "b", "cd", "e"]),
        (at(0), at(1), ["b", "a"]),
        (at(0, 0), at(1, 0), ["a", "c"]),
        (at(1, 0), at(1, 1), ["d"]),
        (at(1), at(4), ["c", "d", "e"]),
        (at(4), at(4), []),
    ],
)
def test_files_between_positions(start: DeltaPosition, end: DeltaPosition, paths: list[str]) -> None:
    """A snapshot is read by modification time, later versions as they were committed; OPTIMIZE adds nothing."""
    assert read(table(*LOG), start, end) == paths


def test_where_the_first_batch_started() -> None:
    """A first batch starts with the snapshot, or with the version that the source's option names."""
    assert start_position(at(3, 1, snapshot=True)) == DeltaPosition(3, None, True)
    assert start_position(at(4)) == DeltaPosition(3, None, True)
    assert start_position(at(4), "2") == DeltaPosition(2)
    assert start_position(at(4), "latest") is None


def test_rows_that_are_not_read_yet() -> None:
    """The lag is the number of rows in the files after the last offset."""
    log = table([add("a", 5)], [add("b", 7), add("c", 11)])
    assert unread_rows(log, at(0, snapshot=True)) == 23
    assert unread_rows(log, at(1)) == 18
    assert unread_rows(log, at(1, 0)) == 11
    assert unread_rows(log, at(2)) == 0
    assert unread_rows(table([add("a", stats=None)]), at(0)) is None


def test_everything_is_still_there() -> None:
    """A range whose commits and files exist can be read again, also if OPTIMIZE ran."""
    assert unreadable_part(table(*LOG), at(0), at(4)) is None


def test_vacuumed_files() -> None:
    """A file that VACUUM has deleted is named."""
    log = table(*LOG)
    log.files.remove("d")  # type: ignore[attr-defined]
    assert "1 file no longer exist, as after VACUUM; the first is d" in str(unreadable_part(log, at(1), at(4)))
    assert unreadable_part(log, at(3), at(4)) is None


def test_cleaned_log() -> None:
    """A version that the log no longer has is named."""
    log = table(*LOG)
    log.files.remove(commit_path(1))  # type: ignore[attr-defined]
    assert "00000000000000000001.json" in str(unreadable_part(DeltaLog(log.files), at(1), at(4)))


def test_versions_that_remove_rows() -> None:
    """A query cannot pass a version that removes rows, unless it skips such versions."""
    log = table([add("a")], [add("b")], [remove("b"), {"commitInfo": {"operation": "RESTORE"}}], [add("c")])
    assert "version 2 (RESTORE) removes rows" in str(unreadable_part(log, at(1), at(2)))
    assert unreadable_part(log, at(1), at(2), skips_changes=True) is None
    assert unreadable_part(log, at(3), at(4)) is None


def test_another_table_at_the_same_path() -> None:
    """A table that was created again is not the one that the offsets belong to."""
    assert "was replaced" in str(unreadable_part(table(*LOG), at(1), DeltaPosition(4, None, False, "other")))
