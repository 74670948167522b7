"""Many streams: refreshed by reading what has changed."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

from corpus_support import load
from fleet.streams import record, write_stream
from headwater.alerts.state import STATE_FILE as ALERTS_FILE
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointUnreadable
from headwater.fleet.fleet import Fleet, change_marker
from headwater.fleet.roots import checkpoint_or_fleet, fleet_of


def names(fleet: Fleet) -> list[str]:
    return [stream.name for stream in fleet.refresh().streams]


def test_refresh_reads_what_changed(tmp_path: Path) -> None:
    """A refresh reads one summary for each checkpoint that has changed, and none if nothing has."""
    for number in range(20):
        write_stream(tmp_path / f"s{number}")
    fleet = Fleet([str(tmp_path)])
    first = fleet.refresh()
    assert (len(first.streams), fleet.summaries_read) == (20, 20)
    assert fleet.refresh() is first
    write_stream(tmp_path / "s3", batches=9)
    second = fleet.refresh()
    assert (second.version > first.version, fleet.summaries_read) == (True, 21)
    found = second.get("s3")
    assert found is not None and found.summary.last_batch == 8


def test_unchanged_checkpoints_are_not_opened(tmp_path: Path) -> None:
    """A refresh opens no file of a checkpoint that has not changed, and only the changed one's otherwise."""
    for number in range(5):
        write_stream(tmp_path / f"s{number}")
    fleet = Fleet([str(tmp_path)])
    fleet.refresh()
    opened: list[str] = []
    is_counting = True

    def count_opened(event: str, arguments: tuple[object, ...]) -> None:
        if is_counting and event == "open" and str(arguments[0]).startswith(str(tmp_path)):
            opened.append(str(arguments[0]))

    sys.addaudithook(count_opened)  # it cannot be removed
    try:
        fleet.refresh()
        assert opened == []
        write_stream(tmp_path / "s3", batches=9)
        opened.clear()
        fleet.refresh()
        assert opened and all(path.startswith(str(tmp_path / "s3")) for path in opened)
    finally:
        is_counting = False


def test_streams_come_and_go(tmp_path: Path) -> None:
    """New checkpoints appear and removed ones disappear."""
    write_stream(tmp_path / "a")
    fleet = Fleet([str(tmp_path)])
    assert names(fleet) == ["a"]
    write_stream(tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    assert names(fleet) == ["b"]


def test_lease_is_seen_without_another_change(tmp_path: Path) -> None:
    """A job that starts and ends changes the status although it changed no log."""
    files = LocalTree(write_stream(tmp_path / "a"))
    with hold_lease(files, "visits", "cannot run"):
        pass
    fleet = Fleet([str(tmp_path)])
    assert fleet.refresh().streams[0].summary.lease is None
    with hold_lease(files, "visits", "cannot run"):
        assert fleet.refresh().streams[0].summary.lease is not None
    assert fleet.refresh().streams[0].summary.lease is None


def test_names_are_unique(tmp_path: Path) -> None:
    """Names are relative to a single root; several roots add their own names."""
    for place in ("x/team/a", "y/team/a", "z/b"):
        write_stream(tmp_path / place)
    assert names(Fleet([str(tmp_path / "x")])) == ["team/a"]
    assert names(Fleet([str(tmp_path / "x"), str(tmp_path / "z" / "b")])) == ["b", "x/team/a"]
    both = [str(tmp_path / "x" / "team"), str(tmp_path / "y" / "team")]
    assert names(Fleet(both)) == [f"{root}/a" for root in both]


def test_checks_are_repeated_after_a_change(tmp_path: Path) -> None:
    """Each stream is checked once, and again when it has changed, after a while."""
    for name in ("a", "b"):
        write_stream(tmp_path / name)
    fleet = Fleet([str(tmp_path)])
    fleet.refresh()
    for expected in ("a", "b"):
        assert fleet.due_for_check(0, 60_000) == expected
        fleet.check(expected)
    later = time.time_ns() // 1_000_000 + 60_000
    assert fleet.due_for_check(later, 60_000) is None
    (tmp_path / "b" / "commits" / "3").unlink()
    fleet.refresh()
    assert fleet.due_for_check(later - 60_000, 60_000) is None
    assert fleet.due_for_check(later, 60_000) == "b"
    assert {finding.severity for finding in fleet.check("b")} >= {"warning"}
    assert [stream.name for stream in fleet.snapshot.by_trouble(later)] == ["b", "a"]


@pytest.mark.parametrize("is_local", [True, False])
def test_heartbeats_are_no_changes(tmp_path: Path, is_local: bool) -> None:
    """The evaluation of alerts does not change a checkpoint; an edit of its records does."""
    local = LocalTree(write_stream(tmp_path / "a", job={"job": "visits"}))
    files = local if is_local else MemoryTree({path: local.read(path) for path in ("offsets/0", "commits/0", JOB_FILE)})
    files.write(ALERTS_FILE, b"{}")
    before = change_marker(files)
    files.write(ALERTS_FILE, b"{ }")
    files.write("_headwater/lease.json", b"{}")
    assert change_marker(files) == before
    files.write(JOB_FILE, b"{}")
    assert change_marker(files) != before


def test_first_refresh_shows_what_it_has(tmp_path: Path) -> None:
    """While many checkpoints are read for the first time, those that were read are shown."""
    for number in range(3):
        write_stream(tmp_path / str(number))
    fleet, seen = Fleet([str(tmp_path)]), []

    class Slow(LocalTree):
        def read(self, path: str) -> bytes:
            time.sleep(0.05)
            return super().read(path)

    fleet._searches[0].files = Slow(tmp_path)
    fleet._search = lambda: ({str(number): Slow(tmp_path / str(number)) for number in range(3)}, ())  # type: ignore[method-assign]
    fleet.refresh(lambda: seen.append((len(fleet.snapshot.streams), fleet.snapshot.is_loading)))
    assert seen[0] == (1, True)
    assert len(fleet.snapshot.streams) == 3 and not fleet.snapshot.is_loading


def test_checkpoint_root_or_neither(tmp_path: Path) -> None:
    """One checkpoint is opened as such; a folder above it is a root; a folder without any is refused."""
    write_stream(tmp_path / "all" / "a")
    assert not isinstance(checkpoint_or_fleet([str(tmp_path / "all" / "a")]), Fleet)
    assert isinstance(checkpoint_or_fleet([str(tmp_path / "all")]), Fleet)
    (tmp_path / "none" / "x").mkdir(parents=True)
    with pytest.raises(CheckpointUnreadable) as refused:
        checkpoint_or_fleet([str(tmp_path / "none")])
    assert refused.value.code == "not-a-checkpoint"
    with pytest.raises(CheckpointUnreadable):
        fleet_of([str(tmp_path / "all"), str(tmp_path / "missing")])


def test_root_that_cannot_be_listed_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that cannot be listed is reported, and the streams below the other ones are shown."""
    for name in ("x/a", "y/b"):
        write_stream(tmp_path / name)
    fleet = Fleet([str(tmp_path / "x"), str(tmp_path / "y")])

    def fail() -> list[str]:
        raise OSError("the disk is away")

    monkeypatch.setattr(fleet._searches[1], "search", fail)
    snapshot = fleet.refresh()
    assert [stream.name for stream in snapshot.streams] == ["x/a"]
    assert [problem.evidence["reason"] for problem in snapshot.problems] == ["the disk is away"]


def test_five_hundred_checkpoints(tmp_path: Path) -> None:
    """500 checkpoints of Spark are read, and a refresh of them reads nothing."""
    made = load("kafka-to-kafka", tmp_path / "made").path
    for number in range(500):
        target = tmp_path / "all" / f"team{number % 7}" / f"stream{number}"
        for folder in ("offsets", "commits"):
            (target / folder).mkdir(parents=True)
            for file in (made / folder).iterdir():
                (target / folder / file.name).hardlink_to(file)
        (target / "metadata").hardlink_to(made / "metadata")
    fleet = Fleet([str(tmp_path / "all")])
    started = time.monotonic()
    assert len(fleet.refresh().streams) == 500
    assert time.monotonic() - started < 20  # about a second on an idle machine
    fleet.refresh()
    assert fleet.summaries_read == 500


def test_lag_of_the_newest_record(tmp_path: Path) -> None:
    """A record that is appended without a new batch is read."""
    write_stream(tmp_path / "a", records=[record(number, lag_rows=1) for number in range(7)])
    fleet = Fleet([str(tmp_path)])
    fleet.refresh()
    with (tmp_path / "a" / "_headwater" / "progress.jsonl").open("a") as file:
        file.write(record(7, lag_rows=42).to_line())
    assert fleet.refresh().streams[0].summary.lag_rows == 42
