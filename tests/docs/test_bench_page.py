"""The page of results has a place for every workload of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import __main__ as bench
from bench import results


@pytest.mark.parametrize("name", bench.WORKLOADS)
def test_page_has_a_section_for_each_workload(name: str) -> None:
    """Results are published between the two markers of their workload."""
    page = results.PAGE.read_text("utf-8")
    assert page.count(f"<!-- bench {name} -->\n") == 1
    assert page.count(f"<!-- end {name} -->") == 1
    assert page.index(f"<!-- bench {name} -->") < page.index(f"<!-- end {name} -->")


def test_page_without_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results without a place on the page are an error, and the page stays as it was."""
    page = tmp_path / "performance.md"
    page.write_text("<!-- bench growth -->\nold\n<!-- end growth -->\n")
    monkeypatch.setattr(results, "PAGE", page)
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    results.publish_report({"growth": "| new |"}, {"growth": {}})
    assert page.read_text() == "<!-- bench growth -->\n\n| new |\n\n<!-- end growth -->\n"
    with pytest.raises(SystemExit, match="must have one section from <!-- bench lakehouse -->"):
        results.publish_report({"growth": "| newer |", "lakehouse": "| other |"}, {"growth": {}, "lakehouse": {}})
    assert "| new |" in page.read_text()
