"""Sending at a steady rate, and writing files atomically."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest

from headwater.core.errors import SetupProblem
from headwater.core.times import ms_from_iso
from headwater.datagen.files import FolderWriter
from headwater.datagen.sending import SLICE_SECONDS, Tally, send_stream
from headwater.datagen.stream import FIXED_START_MS, RecordStream, Shares


class Collected:
    """A target that collects what it receives."""

    def __init__(self) -> None:
        self.slices: list[list[bytes]] = []
        self.flushed = False

    @property
    def values(self) -> list[bytes]:
        return [value for values in self.slices for value in values]

    def send_values(self, values: Sequence[bytes]) -> None:
        self.slices.append(list(values))

    def flush(self) -> None:
        self.flushed = True


def test_rate_does_not_change_the_bytes() -> None:
    """The same seed generates the same records at any rate."""
    fast, slow = Collected(), Collected()
    send_stream(RecordStream("visits", seed=3), {"visits": fast}, start_ms=FIXED_START_MS, count=1500)
    send_stream(RecordStream("visits", seed=3), {"visits": slow}, start_ms=FIXED_START_MS, count=1500, rate=5000)
    assert fast.values == slow.values
    assert fast.flushed


def test_each_stream_goes_to_its_own_target() -> None:
    """The records of two streams are sent to two targets, and counted by stream."""
    targets = {"impressions": Collected(), "clicks": Collected()}
    stream = RecordStream("impressions,clicks", seed=3, shares=Shares(duplicates=0.1))
    tally = send_stream(stream, targets, start_ms=FIXED_START_MS, count=3000)
    assert {name: len(target.values) for name, target in targets.items()} == tally.by_stream
    assert all(b"shown_at" in value for value in targets["impressions"].values)
    assert all(b"clicked_at" in value for value in targets["clicks"].values)
    assert all(target.flushed for target in targets.values())


def test_rate_is_a_ceiling() -> None:
    """No record is sent before it is due."""
    target = Collected()
    tally = send_stream(RecordStream("visits", seed=3), {"visits": target}, start_ms=0, count=1000, rate=2000)
    assert tally.records == 1000
    assert tally.seconds >= (1000 - len(target.slices[-1])) / 2000
    assert max(map(len, target.slices)) <= 40


def test_slow_stream_sends_record_by_record() -> None:
    """At a few records per second, there are no bursts."""
    target = Collected()
    send_stream(RecordStream("visits", seed=3), {"visits": target}, start_ms=0, count=3, rate=40)
    assert [len(values) for values in target.slices] == [1, 1, 1]


def test_event_time_of_a_live_stream_follows_the_clock() -> None:
    """Without a start, the event time is the time at which a record is due, at most a slice ahead of the clock."""
    target = Collected()
    before = int(time.time() * 1000)
    send_stream(RecordStream("sessions", seed=1), {"sessions": target}, start_ms=None, count=50, rate=500)
    after = int(time.time() * 1000)
    times = [ms_from_iso(value.decode().split('"')[7]) for value in target.values]
    ahead = int(SLICE_SECONDS * 1000)
    assert all(before - 1 <= moment <= after + ahead for moment in times)
    assert all(earlier <= later for earlier, later in pairwise(times))


@pytest.mark.parametrize("start_ms", [None, FIXED_START_MS])
def test_stopped_stream_counts_what_it_sent(start_ms: int | None) -> None:
    """A stopped stream counts exactly what was sent, including faults."""
    stop, target = Event(), Collected()

    def stop_after(tally: Tally) -> None:
        if tally.records >= 300:
            stop.set()

    stream = RecordStream("visits", seed=5, shares=Shares(malformed=0.1))
    tally = send_stream(stream, {"visits": target}, start_ms=start_ms, rate=5000, stop=stop, on_progress=stop_after)
    assert tally.records == len(target.values) == 300
    assert tally.malformed == sum(not v.endswith(b"}") or b"{}" in v for v in target.values)
    assert target.flushed


def write(folder: Path, count: int, *, per_file: int = 10, header: str | None = None) -> FolderWriter:
    with FolderWriter(folder, stem="visits", suffix=".json", records_per_file=per_file, header=header) as writer:
        for number in range(count):
            writer.send_values([str(number).encode()])
    return writer


def test_files_are_complete_and_in_order(tmp_path: Path) -> None:
    """File names and modification times increase together; the last file has the remaining records."""
    writer = write(tmp_path, 25)
    files = sorted(tmp_path.iterdir())
    assert [file.read_text().split() for file in files] == [
        [str(number) for number in range(10)],
        [str(number) for number in range(10, 20)],
        [str(number) for number in range(20, 25)],
    ]
    assert (writer.files, writer.sent) == (3, 25)
    milliseconds = [file.stat().st_mtime_ns // 1_000_000 for file in files]
    assert all(earlier < later for earlier, later in pairwise(milliseconds))


def test_incomplete_files_are_invisible(tmp_path: Path) -> None:
    """A file source does not see a file until it has all its records."""
    writer = FolderWriter(tmp_path, stem="visits", suffix=".json", records_per_file=10)
    writer.send_values([b"x"] * 9)
    assert not [file for file in tmp_path.iterdir() if not file.name.startswith(".")]
    writer.send_values([b"x"])
    assert [file.name for file in tmp_path.iterdir()] == ["visits-0000000000.json"]


def test_folder_with_files_is_continued(tmp_path: Path) -> None:
    """A second run adds files after the existing ones, and removes what a killed run left partially written."""
    write(tmp_path, 10)
    (tmp_path / ".visits-0000000001.json.writing").write_text("half")
    write(tmp_path, 10)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["visits-0000000000.json", "visits-0000000001.json"]


def test_header_is_in_every_file(tmp_path: Path) -> None:
    """With a header, each file starts with the column names."""
    write(tmp_path, 2, per_file=1, header="a,b")
    assert [file.read_text() for file in sorted(tmp_path.iterdir())] == ["a,b\n0\n", "a,b\n1\n"]


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder that cannot be created is reported by name."""
    (tmp_path / "file").touch()
    with pytest.raises(SetupProblem, match="cannot write files"):
        write(tmp_path / "file" / "in", 1)
