"""The findings that the page shows."""

from __future__ import annotations

from pathlib import Path

from corpus_support import load
from headwater.checkpoint.local_tree import LocalTree
from headwater.web.findings_pane import page_findings


def test_findings_on_sources(tmp_path: Path) -> None:
    """Findings about the sources are among those of the checkpoint, the worst first."""
    path = load("aggregation-changelog", tmp_path).path
    (path / "offsets/.99.crc").write_bytes(b"crc")
    found = [(finding.severity, finding.code) for finding in page_findings(LocalTree(path), {})]
    assert found[0] == ("error", "stale-crc")
    assert ("info", "file-vanished") in found
    assert [severity for severity, _ in found] == sorted((one for one, _ in found), key="error warning info".index)
