"""Findings on file sources, on real folders and a checkpoint that Spark wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from corpus_support import load
from headwater.checkpoint.file_logs import FileEntry
from headwater.checkpoint.local_tree import LocalTree
from headwater.guards.check import check_sources
from headwater.guards.file_sources import FileNeeds, find_files, max_file_age_ms, report_on
from headwater.guards.report import SourceReport
from headwater.guards.watch import SourceWatch
from waiting_support import wait_until

DAY = 86_400_000
AT_MS = 1_700_000_000_000


def write(folder: Path, name: str, age_ms: int = 0) -> FileEntry:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    os.utime(file, ((AT_MS - age_ms) / 1000,) * 2)
    return FileEntry(file.as_uri(), AT_MS - age_ms, 0, "")


def codes(report: SourceReport) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in report.findings]


def check(folder: Path, read: list[FileEntry], waiting: tuple[FileEntry, ...] = (), **options: str) -> SourceReport:
    needs = FileNeeds("source 0", tuple(read), waiting, str(folder), options)
    return report_on(needs, find_files(needs))


def test_vanished_and_changed(tmp_path: Path) -> None:
    """Files that vanished or changed are counted, and the first of each is named; names may need quoting."""
    read = [write(tmp_path, name) for name in ("a b.json", "c.json", "d.json")]
    assert codes(check(tmp_path, read)) == [("info", "source-checked")]
    (tmp_path / "a b.json").unlink()
    os.utime(tmp_path / "c.json", (AT_MS / 1000 + 60,) * 2)
    report = check(tmp_path, read)
    assert codes(report) == [("warning", "file-vanished"), ("warning", "file-changed"), ("info", "source-checked")]
    assert "1 of 3 input files" in report.findings[0].message
    assert "a%20b.json" in report.findings[0].message
    assert report.files == {"vanished": 1, "changed": 1, "too-old": 0}


def test_vanished_before_it_was_read(tmp_path: Path) -> None:
    """A file that the next batch needs is an error; files that cleanSource removes after reading are none."""
    first, second = write(tmp_path, "1.json"), write(tmp_path, "2.json")
    (tmp_path / "1.json").unlink()
    (tmp_path / "2.json").unlink()
    assert codes(check(tmp_path, [first], (second,), cleansource="delete")) == [("error", "file-vanished")]


def test_too_old(tmp_path: Path) -> None:
    """A new file that is older than maxFileAge is never read; the age counts from the newest file, not from the clock."""
    read = [write(tmp_path, "new.json")]
    write(tmp_path, "old.json", 8 * DAY)
    write(tmp_path, "day=1/older.json", 9 * DAY)
    write(tmp_path, "recent.json", 6 * DAY)
    for hidden in ("_ignored.json", ".hidden", "plain/deep.json"):
        write(tmp_path, hidden, 30 * DAY)
    report = check(tmp_path, read)
    assert codes(report) == [("warning", "file-too-old"), ("info", "source-checked")]
    assert report.files["too-old"] == 2
    assert "2 files will never be read" in report.findings[0].message
    assert check(tmp_path, read, maxfileage="10d").files["too-old"] == 0
    assert check(tmp_path, read, pathglobfilter="*.csv").files["too-old"] == 0
    assert check(tmp_path, read, recursivefilelookup="true").files["too-old"] == 3


def test_files_of_a_sink(tmp_path: Path) -> None:
    """Where a Spark sink wrote the files, its log decides which ones are read, whatever their age."""
    read = [write(tmp_path, "new.json")]
    write(tmp_path, "old.json", 8 * DAY)
    write(tmp_path, "_spark_metadata/0")
    assert check(tmp_path, read).files["too-old"] == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 7 * DAY),
        ({"maxfileage": "1h"}, 3_600_000),
        ({"maxfileage": "90min"}, 5_400_000),
        ({"maxfileage": "500"}, 500),
        ({"maxfileage": "soon"}, None),
        ({"latestfirst": "true"}, 7 * DAY),
        ({"latestfirst": "true", "maxfilespertrigger": "1"}, None),
    ],
)
def test_max_file_age(options: dict[str, str], expected: float | None) -> None:
    """Durations are those of Spark; latestFirst with a limit on the batch switches the age off."""
    assert max_file_age_ms(options) == expected


def test_unknown_options(tmp_path: Path) -> None:
    """Without a record of the source's options, old files may be read, and read files may be removed on purpose."""
    first, second = write(tmp_path, "1.json"), write(tmp_path, "2.json")
    write(tmp_path, "old.json", 8 * DAY)
    (tmp_path / "1.json").unlink()
    needs = FileNeeds("source 0", (first, second), (), str(tmp_path), None)
    report = report_on(needs, find_files(needs))
    assert codes(report) == [("info", "file-vanished"), ("info", "source-checked")]
    assert "cleanSource" in report.findings[0].message
    assert report.files == {"vanished": 1, "changed": 0, "too-old": 0}


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """A checkpoint whose source log names its input files where they are."""
    found = load("stateless", tmp_path)
    for log in (found.path / "sources/0").iterdir():
        if log.name.startswith("."):
            log.unlink()
        else:
            log.write_text(log.read_text().replace(f"{found.about['location']}/input", str(found.input)))
    return found.path


def recorded(path: Path, source: str) -> SourceReport:
    """Return the report on a stream whose source was recorded."""
    (path / "_headwater").mkdir(exist_ok=True)
    (path / "_headwater/job.json").write_text(json.dumps({"job": "copies", "source": source, "attached": True}))
    return check_sources(LocalTree(path))


def test_recorded_options(stream: Path) -> None:
    """The options of the recorded source apply, in any spelling."""
    folder = stream.with_name("input") / "events"
    write(folder, "old.json", 365 * DAY)
    assert recorded(stream, f"files:{folder}?format=json").files["too-old"] == 1
    assert recorded(stream, f"files:{folder}?format=json&maxfileage=99999d").files["too-old"] == 0
    (folder / "feed-00.json").unlink()
    kept = recorded(stream, f"files:{folder}?format=json&pathGlobFilter=feed*&cleanSource=archive")
    assert codes(kept) == [("info", "source-checked")]


def test_recorded_path_with_dots(stream: Path) -> None:
    """Spark resolves .. in a path, so the files in the source's log are in the recorded folder."""
    folder = stream.with_name("input") / "events"
    assert recorded(stream, f"files:{folder}?format=json&maxFileAge=0ms").files["too-old"] == 0
    assert recorded(stream, f"files:{folder}/../events?format=json&maxFileAge=0ms").files["too-old"] == 0


def test_pattern_with_two_asterisks(stream: Path) -> None:
    """To Hadoop, ** is the same as *."""
    folder = stream.with_name("input") / "events"
    report = recorded(stream, f"files:{folder}/**.json?format=json")
    assert codes(report) == [("info", "source-checked")]


def test_path_that_is_no_url(stream: Path) -> None:
    """A path in the source's log that cannot be parsed leaves the source unchecked, with the reason."""
    entry = {"path": "s3a://[x/y.json", "timestamp": AT_MS, "batchId": 3}
    (stream / "sources/0/3").write_text(f"v1\n{json.dumps(entry)}")
    report = check_sources(LocalTree(stream))
    assert codes(report) == [("warning", "source-unchecked")]


def test_watch_survives_bad_data() -> None:
    """A check that fails on what it reads is repeated."""
    results: list[SourceReport | ValueError] = [SourceReport(), ValueError("Invalid IPv6 URL")]

    def check() -> SourceReport:
        result = results.pop() if results else SourceReport()
        if isinstance(result, ValueError):
            raise result
        return result

    with SourceWatch(check, seconds=0.01) as watch:
        wait_until(lambda: watch.latest() is not None, "the second check")


def test_checkpoint_that_spark_wrote(tmp_path: Path) -> None:
    """The log of a real file source names its files by the paths of the machine that ran it: they are missing here."""
    path = load("aggregation-changelog", tmp_path).path
    report = check_sources(LocalTree(path))
    assert ("info", "file-vanished") in codes(report)
    assert report.files["vanished"] > 0
