"""The findings that the page shows."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Browser, expect

from corpus_support import load
from fleet.streams import write_stream
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.fork import ORIGIN_FILE
from headwater.web.findings_pane import page_findings
from web.serving import opened, served


def test_findings_on_sources(tmp_path: Path) -> None:
    """Findings about the sources are among those of the checkpoint, the worst first."""
    path = load("aggregation-changelog", tmp_path).path
    (path / "offsets/.99.crc").write_bytes(b"crc")
    found = [(finding.severity, finding.code) for finding in page_findings(LocalTree(path), {})]
    assert found[0] == ("error", "stale-crc")
    assert ("info", "file-vanished") in found
    assert [severity for severity, _ in found] == sorted((one for one, _ in found), key="error warning info".index)


def test_origin_that_appears_later(tmp_path: Path, browser: Browser) -> None:
    """The journal of an open page shows of which checkpoint this one is a fork, as soon as that is recorded."""
    path = write_stream(tmp_path / "fork")
    with served(path, "--port", 0) as page_of, opened(browser, page_of.url) as page:
        expect(page.get_by_text("Headwater has made no changes to this checkpoint.")).to_be_visible()
        LocalTree(path).write(ORIGIN_FILE, json.dumps({"checkpoint": "/data/visits", "at": 5}).encode())
        expect(page.get_by_text("of /data/visits at batch 5")).to_be_visible()
