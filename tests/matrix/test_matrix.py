"""`make matrix` itself: what it runs, how it resumes, what it leaves behind when it is interrupted, and its table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from matrix import environments
from matrix.__main__ import ROOT, run_command
from matrix.progress import outcomes_in
from matrix.results import BEGIN, END, Outcome, RunLog, column_of, columns_in, merge_reports, read_report, with_columns
from matrix.sets import JOBS, PLAIN, VERSIONS, sets_of

REPORT = """<testsuites><testsuite>
<testcase name="test_all_operators_on_all_stores[two operators-hdfs]"/>
<testcase name="test_all_operators_on_all_stores[two operators-format2]" classname="tests.timemachine.test_x">
  <failure message="AssertionError: rows differ&#10;and more">trace</failure></testcase>
<testcase name="test_all_operators_on_all_stores[two operators-rocksdb]"><skipped message="no such store"/></testcase>
<testcase name="test_all_sources_and_sinks[rate per micro-batch-files]"/>
<testcase classname="tests.jobs.test_gallery_golden" name="test_golden_steps[word_count]"/>
<testcase classname="tests.jobs.test_gallery_golden" name="test_golden_steps[x]"><error message="broken"/></testcase>
<testcase name="test_postgres"/>
</testsuite></testsuites>"""


EMPTY = f"{BEGIN}{END}"


def test_reports_become_a_table(tmp_path: Path) -> None:
    """Cells name the stores and sinks that passed and those that failed; what no version ran has no row."""
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = read_report(report)
    (failed, *_) = [one for one in found if one.outcome == "failed"]
    assert (failed.argument, failed.reason, failed.file) == (
        "two operators-format2",
        "AssertionError: rows differ",
        "test_x",
    )
    skipped = [Outcome("test_golden_steps", "x", "skipped", "too old: a reason", "test_gallery_golden")]
    page = with_columns(EMPTY, [column_of("4.3.0", found), column_of("4.0.5", skipped)])
    assert page.splitlines() == [
        BEGIN,
        "",
        "|  | 4.0.5 | 4.3.0 |",
        "|---|---|---|",
        "| golden scenarios | n/a | **1 of 2** |",
        "| rewind: dropDuplicates, then an aggregation | - | hdfs, **format2 fails** |",
        "| rewind of a plain program: rate-micro-batch to | - | files |",
        "| rewind of a job: files to PostgreSQL | - | yes |",
        "| all tests | 0 passed, 1 n/a | 4 passed, **2 failed**, 1 n/a |",
        "",
        "Tests that were skipped:",
        "",
        "- no such store: 1 on 4.3.0",
        "- too old: a reason: 1 on 4.0.5",
        "",
        END,
    ]


def test_versions_that_did_not_run_keep_their_column() -> None:
    """A new run replaces the column of its own version, also if the patch is newer, and no other."""
    old, other = [Outcome("test_postgres", "", "passed")], [Outcome("test_rate", "", "skipped", "no rate")]
    page = with_columns(EMPTY, [column_of("4.1.3", old), column_of("4.10.0", other)])
    page = with_columns(page, [column_of("4.1.4", [Outcome("test_postgres", "", "failed")])])
    assert "| rewind of a job: files to PostgreSQL | **fails** | - |" in page
    assert [column.version for column in columns_in(page)] == ["4.1.4", "4.10.0"]
    assert columns_in(page)[1].skipped == {"no rate": 1}


def test_tests_that_failed_run_again(tmp_path: Path) -> None:
    """Their outcomes replace the earlier ones in the report; the others stay."""
    report, part = tmp_path / "report.xml", tmp_path / "report.draft"
    report.write_text(REPORT)
    failed = [one.node for one in read_report(report) if one.outcome == "failed"]
    assert failed == [
        "tests/timemachine/test_x.py::test_all_operators_on_all_stores[two operators-format2]",
        "tests/jobs/test_gallery_golden.py::test_golden_steps[x]",
    ]
    part.write_text(
        '<testsuites><testsuite><testcase classname="tests.jobs.test_gallery_golden" name="test_golden_steps[x]"/>'
        "</testsuite></testsuites>"
    )
    before = read_report(report)
    merge_reports(report, part)
    after = read_report(report)
    assert [one.node for one in after] == [one.node for one in before]
    assert [one.node for one in after if one.outcome == "failed"] == failed[:1]
    assert not part.exists()


def test_the_table_of_the_page_is_read_as_it_was_written() -> None:
    """Nothing in docs/limits.md changes if no version has run again. The table there has no failures."""
    page = (ROOT / "docs" / "limits.md").read_text("utf-8")
    assert "**" not in page.partition(BEGIN)[2].partition(END)[0], "a version fails"
    assert with_columns(page, []) == page


def test_a_run_resumes_where_it_was_interrupted(tmp_path: Path) -> None:
    """Sets that passed are known to the next run until one ends without failures; reports stay."""
    log = RunLog(tmp_path / ".matrix")
    assert not log.has_passed("4.3", "golden scenarios")
    log.add_passed("4.3", "golden scenarios")
    log.add_passed("4.3", "`replay`")
    log.note_patch("4.3", "4.3.0")
    again = RunLog(tmp_path / ".matrix")
    assert again.has_passed("4.3", "golden scenarios")
    assert not again.has_passed("4.0", "golden scenarios")
    again.forget()
    assert not again.has_passed("4.3", "`replay`")
    assert (again.patch("4.3"), again.patch("4.0")) == ("4.3.0", "4.0")


def test_every_set_names_tests_that_exist() -> None:
    """Each set names files of this repository; 3.5 has the rewinds of plain programs only."""
    for one in (*JOBS, *PLAIN):
        assert all((ROOT / test.partition("::")[0]).is_file() for test in one.tests), one.name
    assert {version: len(sets_of(version)) for version in VERSIONS if version < "4"} == {"3.5": len(PLAIN)}


def test_progress_is_what_pytest_has_printed(tmp_path: Path) -> None:
    """The number of tests is that after deselection, and each outcome counts once."""
    output = tmp_path / "output"
    output.write_text(
        "collected 9 items / 5 deselected / 4 selected\n\n"
        "a.py::test_one PASSED [ 25%]\na.py::test_two SKIPPED (why) [ 50%]\na.py::test_three \nPASSED in a log\n"
    )
    assert outcomes_in(output) == (2, 4)


def test_an_interrupted_installation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that is not complete is removed, and is created from scratch the next time."""

    def interrupted(command: list[str], **_: object) -> None:
        Path(command[-1]).mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        environments.environment(tmp_path, "4.3", said.append)
    assert not list(tmp_path.iterdir())
    assert "installing PySpark 4.3" in said[0]


def test_an_environment_is_created_again_when_its_recipe_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment that exists is used, until its requirements change or it is older than the recipe file."""

    def installed(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if "venv" in command:
            for folder in ("bin", "lib/python3.11/site-packages"):
                (Path(command[-1]) / folder).mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", installed)
    said: list[str] = []
    for _ in range(2):
        environments.environment(tmp_path, "3.5", said.append)
    assert len(said) == 1
    monkeypatch.setitem(environments.OF_THEIR_TIME, "3.5", ("numpy<2",))
    environments.environment(tmp_path, "3.5", said.append)
    assert len(said) == 2
    (tmp_path / "pyspark-3.5" / environments.READY).unlink()
    environments.environment(tmp_path, "3.5", said.append)
    assert len(said) == 3


@pytest.mark.services
def test_ctrl_c_ends_the_tests_and_what_they_started(tmp_path: Path) -> None:
    """The tests get the signal and may clean up; processes that they leave behind are killed."""
    program = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
folder = pathlib.Path({str(tmp_path)!r})
(folder / "child").write_text(str(child.pid))
try:
    time.sleep(600)
except KeyboardInterrupt:
    (folder / "cleaned").touch()
"""

    def interrupt_when_started() -> None:
        if (tmp_path / "child").exists():
            raise KeyboardInterrupt

    with (tmp_path / "output").open("w") as output, pytest.raises(KeyboardInterrupt):
        run_command([sys.executable, "-c", program], output.fileno(), dict(os.environ), interrupt_when_started)
    assert (tmp_path / "cleaned").exists()
    assert _ended(int((tmp_path / "child").read_text()))


def _ended(process: int) -> bool:
    """Return whether a process has ended, or waits only for its parent to notice."""
    for _ in range(50):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False
