"""The logs of file sources and file sinks, which Spark compacts."""

from __future__ import annotations

from headwater.checkpoint.file_logs import FileSourceLog, LogNames
from headwater.checkpoint.memory_tree import MemoryTree


def line(number: int) -> str:
    return f'{{"path":"file:///in/{number}.json","timestamp":{number},"batchId":{number}}}'


def log_of(*names: str) -> FileSourceLog:
    """Return a log in which every id has one file; compact files repeat everything before them."""
    contents = {}
    for name in names:
        number = int(name.removesuffix(".compact"))
        held = range(number + 1) if name.endswith(".compact") else [number]
        contents[f"sources/0/{name}"] = "\n".join(["v1", *map(line, held)]).encode()
    return FileSourceLog(MemoryTree(contents), "sources/0")


def test_needed_files_start_with_the_last_compact_file() -> None:
    """All entries up to an id are in the last compact file up to it and the files since."""
    names = LogNames.of(["0", "1", "2.compact", "3", "4", "5.compact", ".5.compact.crc", "x"])
    assert names.ids == (0, 1, 2, 3, 4, 5)
    assert names.needed_for(4) == (2, 3, 4)
    assert names.needed_for(1) == (0, 1)
    assert names.missing_for(5) == ()


def test_missing_ids_are_named() -> None:
    """An id without a file is missing if it is after the last compact file, and unneeded before it."""
    names = LogNames.of(["2.compact", "4"])
    assert names.missing_for(4) == (3,)
    assert names.missing_for(2) == ()
    assert names.missing_for(1) == (0, 1)
    assert len(LogNames.of(["999999999999999"]).missing_for(999999999999999)) == 20


def test_two_files_for_one_id() -> None:
    """A compact file takes precedence over a plain one with the same id, and a duplicate is reported."""
    names = LogNames.of(["5", "5.compact"])
    assert names.by_id == {5: "5.compact"}
    assert names.duplicates == ("5.compact",)


def test_entries_of_one_offset() -> None:
    """The files of a log offset are read from its own file or from a later compact one."""
    log = log_of("1", "2.compact", "3")
    assert [entry.batch_id for entry in log.entries_at(1) or ()] == [1]
    assert [entry.batch_id for entry in log.entries_at(2) or ()] == [2]
    assert [entry.batch_id for entry in log.entries_at(0) or ()] == [0]
    assert log.entries_at(4) is None
    assert [entry.path for entry in log.entries_between(0, 3) or ()] == [f"file:///in/{n}.json" for n in (1, 2, 3)]
    assert log.entries_between(2, 5) is None


def test_everything_up_to_an_offset() -> None:
    """All files up to an offset are read from a later compact file if the earlier ones are missing."""
    assert [entry.batch_id for entry in log_of("2.compact", "3").everything_upto(3) or ()] == [0, 1, 2, 3]
    assert [entry.batch_id for entry in log_of("5.compact").everything_upto(3) or ()] == [0, 1, 2, 3]
    assert log_of("3").everything_upto(3) is None
