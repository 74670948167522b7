"""The table of batches that ``log`` prints."""

from __future__ import annotations

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.history import History
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.source_offsets import source_range
from headwater.views.batches import COLUMNS, batch_cells, offset_range, table_layout

ROWS = [batch_cells(batch) for batch in History(as_memory_files("join-hdfs")).batches()]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_lines_fit_the_terminal(width: int) -> None:
    """On a narrow terminal, READ is shortened and columns are left out, but never batch, status and rewind."""
    layout = table_layout(ROWS, width)
    lines = [layout.line(COLUMNS), *(layout.line(cells) for cells in ROWS)]
    assert all(len(line) <= width for line in lines)
    assert {"BATCH", "STATUS", "REWIND"} <= set(lines[0].split())


def test_piped_table_has_every_column() -> None:
    """Without a terminal, no column is left out."""
    assert table_layout(ROWS).line(COLUMNS).split() == " ".join(COLUMNS).split()


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
def test_offset_range(start: str | None, end: str, text: str) -> None:
    """The offsets that were read from a source are shown in short."""
    assert offset_range(source_range("0", start, end, start_known=True)) == text


def test_batch_without_offsets() -> None:
    """A batch of which only the commit is left still has a row."""
    (cells,) = [batch_cells(batch) for batch in History(MemoryTree({"commits/3": b"v1\n{}"})).batches()]
    assert cells[:3] == ("3", "committed", "-")
