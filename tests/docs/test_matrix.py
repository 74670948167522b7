"""The table of PySpark versions in docs/limits.md is what `make matrix` writes."""

from __future__ import annotations

from pathlib import Path

from matrix.results import BEGIN, END, Outcome, read_report, table, with_table

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
REPORT = """<testsuites><testsuite>
<testcase name="test_golden_steps[a]"/><testcase name="test_golden_steps[b]"><failure/></testcase>
<testcase name="test_all_operators_on_all_stores[two operators-hdfs]"/>
<testcase name="test_all_operators_on_all_stores[two operators-format2]"><failure/></testcase>
<testcase name="test_all_operators_on_all_stores[timers-rocksdb]"><skipped/></testcase>
<testcase name="test_rate"/>
</testsuite></testsuites>"""


def test_outcomes_become_cells(tmp_path: Path) -> None:
    """A failure is named, and what a version lacks is not counted as passed."""
    (tmp_path / "report.xml").write_text(REPORT)
    found = read_report(tmp_path / "report.xml")
    assert found[1] == Outcome("test_golden_steps", "b", "failed")
    lines = table({"4.1.4": {"golden scenarios": found[:2], "rewinds of state": found[2:]}}).splitlines()
    assert lines[0] == "|  | 4.1.4 |"
    assert "| golden scenarios | 1 of 2 |" in lines
    assert "| rewind: dropDuplicates, then an aggregation | hdfs, **format2 fails** |" in lines
    assert not any("timers" in line for line in lines), "a row that no version has run is left out"
    assert "| rewind: rate to files | yes |" in lines


def test_the_page_has_the_markers() -> None:
    """The table can be written into the page, and replaces the one that is there."""
    page = PAGE.read_text("utf-8")
    again = with_table(with_table(page, "first"), "second")
    assert "first" not in again.partition(BEGIN)[2].partition(END)[0]
    assert again.count("second") == page.count("second") + 1
    assert "**" not in page.partition(BEGIN)[2].partition(END)[0], "a version fails"
