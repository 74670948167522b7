"""``headwater late``: refusals before Spark starts. ``test_replay_and_late`` has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import load


@pytest.mark.parametrize("option", ["--summary", "--json"])
def test_saved_records_are_not_printed(command: Command, tmp_path: Path, option: str) -> None:
    """Options for printed records are refused with --to, where they would have no effect."""
    checkpoint = load("aggregation-changelog", tmp_path).path
    ran = command("late", checkpoint, "--to", f"files:{tmp_path}/saved", option)
    assert (ran.status, f"{option} has no effect with --to" in ran.err) == (2, True), ran.err
    assert not (tmp_path / "saved").exists()
