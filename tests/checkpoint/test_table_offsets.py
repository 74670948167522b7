"""Offsets of Delta and Iceberg sources."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.checkpoint.history import History, files_of
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.source_offsets import kind_of, short_text, step_between
from headwater.checkpoint.table_offsets import DeltaPosition, IcebergPosition, table_position
from headwater.core.ids import BatchId
from headwater.views.batches import batch_lines, offset_range


def delta(version: int, index: int = -1, *, starting: bool = False, table: str = "t") -> dict[str, Any]:
    return {
        "sourceVersion": 1,
        "reservoirId": table,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": starting,
    }


def iceberg(snapshot: int, position: int, *, everything: bool = False) -> dict[str, Any]:
    return {"version": 1, "snapshot_id": snapshot, "position": position, "scan_all_files": everything}


@pytest.mark.parametrize(
    ("offset", "position", "text", "sentence"),
    [
        (delta(4), DeltaPosition(4, None, False, "t"), "4", "version 4, before its first file"),
        (delta(4, -100), DeltaPosition(4, None, False, "t"), "4", "version 4, before its first file"),
        (delta(4, 2), DeltaPosition(4, 2, False, "t"), "4:2", "version 4, after its file 2"),
        (
            delta(3, 0, starting=True),
            DeltaPosition(3, 0, True, "t"),
            "snapshot 3:0",
            "the snapshot of version 3, after its file 0",
        ),
        (iceberg(77, 3), IcebergPosition(77, 3), "77:3", "snapshot 77, after 3 of its added files"),
        (
            iceberg(77, 1, everything=True),
            IcebergPosition(77, 1, True),
            "77:1",
            "snapshot 77, after 1 of its files of the table",
        ),
    ],
)
def test_positions(offset: dict[str, Any], position: DeltaPosition | IcebergPosition, text: str, sentence: str) -> None:
    """An offset is shown as a version or snapshot and a file."""
    assert table_position(offset) == position
    assert kind_of(offset) == position.kind
    assert (short_text(offset), position.sentence) == (text, sentence)


@pytest.mark.parametrize("value", [None, 3, "x", {}, {"reservoirVersion": "4"}, {"snapshot_id": 1}, {"logOffset": 1}])
def test_other_offsets(value: Any) -> None:
    """Offsets of other sources are not positions in a table."""
    assert table_position(value) is None


@pytest.mark.parametrize(
    ("kind", "before", "after", "step"),
    [
        ("delta", delta(3), delta(4), "forward"),
        ("delta", delta(3, 0, starting=True), delta(3, 1, starting=True), "forward"),
        ("delta", delta(3, 1, starting=True), delta(4), "forward"),
        ("delta", delta(4, 1), delta(4, 0), "backward"),
        ("delta", delta(4), delta(4), "same"),
        ("delta", delta(4), delta(3, table="other"), "unknown"),
        ("iceberg", iceberg(1, 0), iceberg(1, 2), "forward"),
        ("iceberg", iceberg(1, 2), iceberg(1, 0), "backward"),
        ("iceberg", iceberg(1, 2), iceberg(2, 0), "unknown"),
    ],
)
def test_steps(kind: str, before: dict[str, Any], after: dict[str, Any], step: str) -> None:
    """A source that went back is noticed where positions have an order."""
    assert step_between(kind, before, after)[0] == step


def test_log_and_show() -> None:
    """The table of batches has short positions, and one batch shows them in words."""
    files = MemoryTree()
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\n'
    text = '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":%d,"index":%d,"isStartingVersion":%s}'
    files.write("metadata", b'{"id":"0ba3dd96-5016-4d52-8624-9efd500bc25a"}')
    for number, end in enumerate([(3, 0, "true"), (4, -1, "false"), (5, 1, "false")]):
        files.write(f"offsets/{number}", (head + text % end).encode())
        files.write(f"commits/{number}", b'v1\n{"nextBatchWatermarkMs":0}')
    history = History(files)
    batches = [history.batch(BatchId(number)) for number in range(3)]
    assert [offset_range(batch.sources[0]) for batch in batches] == [
        "delta -→snapshot 3:0",
        "delta snapshot 3:0→4",
        "delta 4→5:1",
    ]
    shown = list(batch_lines(batches[0], files_of(history, batches[0])))
    assert "  from the start" in shown
    assert "  to   the snapshot of version 3, after its file 0" in shown
