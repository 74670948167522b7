"""Batches as rows of a table."""

from __future__ import annotations

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.history import History
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.source_offsets import source_range
from headwater.views.batches import COLUMNS, reading, row, shape_of

ROWS = [row(batch) for batch in History(as_memory_files("join-hdfs")).batches()]


@pytest.mark.parametrize("room", [80, 100, 120])
def test_lines_fit_the_terminal(room: int) -> None:
    """In a narrow terminal what was read is cut and columns go; batch, status and rewind stay."""
    shape = shape_of(ROWS, room)
    lines = [shape.line(COLUMNS), *(shape.line(cells) for cells in ROWS)]
    assert all(len(line) <= room for line in lines)
    assert {"BATCH", "STATUS", "REWIND"} <= set(lines[0].split())


def test_piped_table_has_every_column() -> None:
    """Without a terminal nothing is left out."""
    assert shape_of(ROWS).line(COLUMNS).split() == " ".join(COLUMNS).split()


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ('{"visits":{"0":1,"1":4}}', '{"visits":{"0":3,"1":4}}', "visits 0:1→3"),
        ('{"v":{"0":0,"1":0,"2":0,"3":0}}', '{"v":{"0":1,"1":1,"2":1,"3":1}}', "v 4 of 4 partitions"),
        ('{"v":{"0":1}}', '{"v":{"0":1}}', "kafka -"),
        ('{"logOffset":3}', '{"logOffset":4}', "files 3→4"),
        (None, '{"logOffset":0}', "files →0"),
        ("7", "9", "socket 7→9"),
    ],
)
def test_reading(start: str | None, end: str, text: str) -> None:
    """What a source gave is told in one short piece."""
    assert reading(source_range("0", start, end, start_known=True)) == text


def test_batch_without_any_offsets() -> None:
    """A batch of which only the commit is left still has a row."""
    (cells,) = [row(batch) for batch in History(MemoryTree({"commits/3": b"v1\n{}"})).batches()]
    assert cells[:3] == ("3", "committed", "-")
