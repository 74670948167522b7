"""The table of batches that ``log`` prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpus_support import as_memory_files
from fleet.streams import T0, write_stream
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.record import PROGRESS_FILE, ProgressRecord
from headwater.checkpoint.source_offsets import source_range
from headwater.views.batch_table import COLUMNS, batch_cells, table_layout
from headwater.views.batches import batch_as_dict, offset_range, offset_ranges
from two_sources import TwoSources


def joined(*kinds: str, lags: tuple[int, ...] = ()) -> TwoSources:
    return TwoSources(*kinds).batch(2, 3, watermark=None, after=1, lags=lags).batch(2, 0, watermark=1, lags=lags)


ROWS = [batch_cells(batch) for batch in History(as_memory_files("join-hdfs")).batches()]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_lines_fit_the_terminal(width: int) -> None:
    """On a narrow terminal, READ is shortened and columns are left out, but never batch, status and rewind."""
    layout = table_layout(ROWS, width)
    lines = [layout.line(COLUMNS), *(layout.line(cells) for cells in ROWS)]
    assert all(len(line) <= width for line in lines)
    assert {"BATCH", "STATUS", "REWIND"} <= set(lines[0].split())


def test_piped_table_has_every_column() -> None:
    """Without a terminal, no column is left out, except UNREAD if no batch has a record of it."""
    assert table_layout(ROWS).line(COLUMNS).split() == " ".join(COLUMNS).replace("UNREAD ", "").split()
    recorded = [batch_cells(batch) for batch in History(joined(lags=(7, 0)).files).batches()]
    assert table_layout(recorded).line(COLUMNS).split() == " ".join(COLUMNS).split()


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


@pytest.mark.parametrize(
    ("files", "read"),
    [
        (joined(), "shown 0:2→4; clicked -"),
        (joined("files /in/ads", "files /in/clicks"), "files ads 1→3; files clicks -"),
        (joined("files /in", "kafka clicks"), "files in 1→3; clicks -"),
        (joined("kafka ads", "kafka ads"), "source 0 0:2→4; source 1 -"),
        (joined().with_job(c="kafka://h:1/clicked", a="kafka://h:1/shown"), "a 0:2→4; c -"),
    ],
)
def test_several_sources_are_distinguished(files: TwoSources, read: str) -> None:
    """Each of several sources has its name, its topic or its folder; a number if these are ambiguous."""
    assert offset_ranges(History(files.files).batches()[-1].sources) == read


def test_unread_records_of_each_source() -> None:
    """The unread records are listed in the order of the sources, and per source in JSON."""
    newest = History(joined(lags=(7, 0)).files).batches()[-1]
    assert batch_cells(newest)[COLUMNS.index("UNREAD")] == "7; 0"
    assert [source["lag"] for source in batch_as_dict(newest)["sources"]] == [7, 0]


def test_recorded_rows_of_file_sources() -> None:
    """With a progress record, the rows of each file source are known."""
    files = joined("files /in/ads", "files /in/clicks", lags=(0, 0)).files
    assert [batch.rows for batch in History(files).batches()] == [5, 2]
    assert [source.rows for source in History(files).batches()[0].sources] == [2, 3]


def test_batch_without_offsets() -> None:
    """A batch of which only the commit is left still has a row."""
    (cells,) = [batch_cells(batch) for batch in History(MemoryTree({"commits/3": b"v1\n{}"})).batches()]
    assert cells[:3] == ("3", "committed", "-")


def test_duration_after_a_rewind(tmp_path: Path) -> None:
    """A batch that ran again keeps the time of its first plan: its duration is that of the record, or unknown."""
    files = LocalTree(write_stream(tmp_path, batches=2))
    again_ms = T0 + 600_000

    def took() -> str:
        return batch_cells(History(files).batches()[-1])[COLUMNS.index("TOOK")]

    def set_time(path: str, at_ms: int) -> None:
        os.utime(tmp_path / path, (at_ms / 1000, at_ms / 1000))

    set_time("commits/1", again_ms + 56_000)
    assert took() == "10 min 55 s"
    files.write("_headwater/journal/000001.json", b"{}")
    set_time("_headwater/journal/000001.json", again_ms - 60_000)
    assert took() == "-"
    files.write(PROGRESS_FILE, ProgressRecord(1, again_ms, duration_ms=56_200).to_line().encode())
    assert took() == "56.2 s"
