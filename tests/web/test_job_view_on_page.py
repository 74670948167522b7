"""The state as the job sees it, on the page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from corpus_support import load
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import JobRecord
from web.serving import go_to, opened, served, state_rows, summary

JOB = """
from headwater import Console, Files, Job

def variables(rows):
    return [{"variable": name, "rows": 7} for name in sorted({row["var"] for row in rows})]

VIEWED = Job("viewed", lambda frame: frame, Files("in", schema="a INT"), Console(), state_view=variables)
"""


def test_switch_between_rows_and_view(browser: Browser, tmp_path: Path) -> None:
    """The switch shows the rows of the job's view for the selected batch, and the raw rows again when it is off."""
    (tmp_path / "viewed.py").write_text(JOB)
    path = load("custom-changelog", tmp_path).path
    record = JobRecord(job="viewed", reference="viewed.py:VIEWED", has_state_view=True)
    LocalTree(path).write(JOB_FILE, record.to_bytes())
    with served(path, cwd=tmp_path) as server, opened(browser, server.url) as page:
        go_to(page, 3)
        switch = page.get_by_role("switch", name="as the job sees it")
        expect(switch).to_have_attribute("aria-checked", "false")
        raw = state_rows(page)
        switch.click()
        heading = page.locator(".hw-state th").filter(has_text="variable")
        expect(heading).to_be_visible()
        viewed = state_rows(page)
        assert viewed
        assert {row[2] for row in viewed} == {"7"}
        expect(page.get_by_role("switch", name="only changes")).not_to_be_visible()
        go_to(page, 2)
        switch.click()
        expect(heading).to_have_count(0)
        go_to(page, 3)
        expect(summary(page)).to_contain_text("batch 3 ")
        assert state_rows(page) == raw


def test_no_switch_without_a_view(browser: Browser, tmp_path: Path) -> None:
    """A checkpoint that records no view has no switch."""
    path = load("custom-changelog", tmp_path).path
    with served(path) as server, opened(browser, server.url) as page:
        go_to(page, 3)
        expect(page.get_by_role("switch", name="as the job sees it")).not_to_be_visible()
