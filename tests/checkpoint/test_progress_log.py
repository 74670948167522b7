"""The recorded progress of each batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint import progress_files
from headwater.checkpoint.history import History, clean_batches
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.progress_files import ProgressIndex, ProgressTail, ProgressWriter, RecentProgress
from headwater.checkpoint.record import (
    PROGRESS_FILE,
    OperatorWatermark,
    ProgressRecord,
    SourceProgress,
    parse_line,
    read_progress,
)
from headwater.core.errors import ServiceUnreachable


def record(batch_id: int, rows: int = 1) -> ProgressRecord:
    return ProgressRecord(
        batch_id=batch_id,
        at_ms=1_000 * batch_id,
        input_rows=rows,
        durations_ms={"addBatch": 7},
        sources=(SourceProgress("0", "ads", "KafkaV2[Subscribe[ads]]", rows, 0, 3), SourceProgress("1")),
        watermarks=(OperatorWatermark("0", "at", 60_000, 1_000_000), OperatorWatermark(None, "then", 0)),
    )


def test_records_read_back_as_written(tmp_path: Path) -> None:
    """Every field of every record reads back as written."""
    files = LocalTree(tmp_path)
    writer = ProgressWriter(files)
    for number in range(3):
        writer.add(record(number))
    assert read_progress(files) == {number: record(number) for number in range(3)}


def test_last_line_of_a_batch_is_valid(tmp_path: Path) -> None:
    """If a batch ran again after a rewind, the record of its second run is returned."""
    files = LocalTree(tmp_path)
    ProgressWriter(files).add(record(4, rows=10))
    ProgressWriter(files).add(record(4, rows=12))
    assert read_progress(files)[4].input_rows == 12


def test_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full file is replaced by a new one; one older file is kept, and both are read."""
    monkeypatch.setattr(progress_files, "MOST_LINES", 10)
    files = LocalTree(tmp_path)
    writer = ProgressWriter(files)
    for number in range(35):
        writer.add(record(number))
    kept = {path.name: path.read_text().count("\n") for path in (tmp_path / "_headwater").iterdir()}
    assert kept == {"progress.jsonl": 5, "progress.older.jsonl": 10}
    assert sorted(read_progress(files)) == list(range(20, 35))


def test_object_store_rewrites_the_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an object store, the object is rewritten with the last lines."""
    monkeypatch.setattr(progress_files, "REMOTE_SECONDS", 0.0)
    monkeypatch.setattr(progress_files, "REMOTE_LINES", 2)
    files = MemoryTree({})
    writer = ProgressWriter(files)
    for number in range(3):
        writer.add(record(number))
    assert sorted(read_progress(files)) == [1, 2]


def test_object_store_gets_the_last_records_at_the_end() -> None:
    """Records of the last seconds are written when the run ends, after those of earlier runs."""
    files = MemoryTree({})
    for first in (0, 3):
        writer = ProgressWriter(files)
        for number in range(first, first + 3):
            writer.add(record(number))
        writer.close()
    assert sorted(read_progress(files)) == [0, 1, 2, 3, 4, 5]


def test_object_store_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the records of earlier runs cannot be read, they are not overwritten."""
    monkeypatch.setattr(progress_files, "REMOTE_SECONDS", 0.0)
    files = MemoryTree({})
    ProgressWriter(files).add(record(0))
    writer = ProgressWriter(files)
    with monkeypatch.context() as patched:
        patched.setattr(files, "read", unreachable)
        writer.add(record(1))
    assert sorted(read_progress(files)) == [0]
    writer.add(record(2))
    assert sorted(read_progress(files)) == [0, 1, 2]


def unreachable(path: str) -> bytes:
    raise ServiceUnreachable("store-unreachable", f"cannot read {path}")


def test_unreadable_lines_are_skipped() -> None:
    """A truncated line, or one that is not a record, is skipped; unknown fields of a newer version are ignored."""
    assert parse_line('{"batch_id":1,"at_') is None
    assert parse_line("[1,2]") is None
    assert parse_line("{}") is None
    assert parse_line('{"batch_id":1,"at_ms":5,"from_the_future":true}') == ProgressRecord(1, 5)


def test_numbers_of_another_type() -> None:
    """A number that is none is ignored, unless it says which batch it is and when it ran."""
    odd = '"input_rows":null,"input_rate":"1","dropped":"3","lag_rows":[],"durations_ms":7,"duration_ms":"x"'
    assert parse_line(f'{{"batch_id":1,"at_ms":5,"state_rows":null,{odd}}}') == ProgressRecord(1, 5)
    assert parse_line('{"batch_id":"1","at_ms":5}') is None
    assert parse_line('{"batch_id":1,"at_ms":null}') is None


@pytest.mark.parametrize(
    "parts",
    [
        '"sources":7',
        '"sources":[7]',
        '"sources":[{"records":"x"}]',
        '"watermarks":[{}]',
        '"watermarks":[{"column":"a"}]',
    ],
)
def test_parts_in_an_unknown_form(parts: str) -> None:
    """A record whose parts have another form is read without them."""
    assert parse_line(f'{{"batch_id":1,"at_ms":5,{parts}}}') == ProgressRecord(1, 5)


def test_index_finds_single_records(tmp_path: Path) -> None:
    """Single records are found by batch, whatever the order of their fields; a truncated line hides none."""
    files = LocalTree(tmp_path)
    writer = ProgressWriter(files)
    for number in range(3):
        writer.add(record(number))
    writer.add(record(1, rows=9))
    files.append(PROGRESS_FILE, b'{"at_ms": 5, "batch_id": 7}\n{"batch_id":2,"at_')
    index = ProgressIndex(files)
    assert [index.get(number) for number in (0, 1, 2)] == [record(0), record(1, rows=9), record(2)]
    assert index.get(7) == ProgressRecord(7, 5)
    assert index.get(3) is None
    assert ProgressIndex(MemoryTree({})).get(0) is None


def test_failed_write_does_not_stop_the_stream(tmp_path: Path) -> None:
    """If the record cannot be written, nothing is raised."""
    (tmp_path / "_headwater").write_text("a file where a folder should be")
    ProgressWriter(LocalTree(tmp_path)).add(record(0))
    assert read_progress(LocalTree(tmp_path)) == {}


def test_tail_sees_what_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second read returns new lines, a line only once it is complete, and the lines of a new file."""
    monkeypatch.setattr(progress_files, "MOST_LINES", 4)
    files = LocalTree(tmp_path)
    tail, writer = ProgressTail(files), ProgressWriter(files)
    assert tail.records() == {}
    writer.add(record(0))
    assert sorted(tail.records()) == [0]
    line = record(1).to_line()
    path = files.local_path(PROGRESS_FILE)
    with path.open("a") as out:
        out.write(line[:20])
        out.flush()
        assert sorted(tail.records()) == [0]
        out.write(line[20:])
    assert sorted(tail.records()) == [0, 1]
    for number in range(2, 9):
        writer.add(record(number))
    assert sorted(tail.records()) == list(range(9))


def test_recent_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only records from after a time are kept, across files; those from before are not even read."""
    monkeypatch.setattr(progress_files, "MOST_LINES", 200)
    monkeypatch.setattr(progress_files, "BLOCK_BYTES", 2_000)
    parsed: list[str] = []
    monkeypatch.setattr(progress_files, "parse_line", lambda line: parsed.append(line) or parse_line(line))
    files = LocalTree(tmp_path)
    recent, writer = RecentProgress(files, keep=lambda one: replace(one, sources=())), ProgressWriter(files)
    assert recent.since(0) == {}
    for number in range(195):
        writer.add(record(number))
    parsed.clear()
    assert recent.since(189_000) == {number: replace(record(number), sources=()) for number in range(190, 195)}
    assert len(parsed) < 50
    for number in range(195, 203):
        writer.add(record(number))
    assert sorted(recent.since(192_000)) == list(range(193, 203))
    writer.add(record(202, rows=9))
    with files.local_path(PROGRESS_FILE).open("a") as out:
        out.write(record(203).to_line()[:20])
    assert recent.since(200_000)[202].input_rows == 9
    with files.local_path(PROGRESS_FILE).open("a") as out:
        out.write(record(203).to_line()[20:])
    assert sorted(recent.since(200_000)) == [201, 202, 203]
    assert sorted(
        RecentProgress(MemoryTree({PROGRESS_FILE: record(1).to_line().encode()}), lambda one: one).since(0)
    ) == [1]


def test_batches_that_dropped_nothing() -> None:
    """A batch is clean if its record counts no late and no malformed records; attached programs count no malformed ones."""
    files = as_memory_files("dedup-hdfs")
    counted, unknown = SourceProgress("0", None, "files", 5, 0), SourceProgress("0", None, "files", 5)
    records = [
        ProgressRecord(0, 0, 5, sources=(counted,)),
        ProgressRecord(1, 0, 5, malformed=1, sources=(counted,)),
        ProgressRecord(2, 0, 5, dropped=1, sources=(counted,)),
        ProgressRecord(3, 0, 5, sources=(unknown,)),
        ProgressRecord(4, 0, 0, sources=(unknown,)),
        ProgressRecord(5, 0, 5),
    ]
    history = History(files)
    times = {number: history.logs.offsets.read(number).timestamp_ms for number in range(6)}
    lines = [replace(one, at_ms=times[one.batch_id], duration_ms=60_000).to_line() for one in records]
    files.write(PROGRESS_FILE, "".join(lines).encode())
    assert clean_batches(History(files), range(7)) == {0, 4, 5}
